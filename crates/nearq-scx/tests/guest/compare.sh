# Runs in a virtual machine: a load under the kernel's own scheduler, then under the node affine one, in the same boot.
. /job/settings
# Just after boot the kernel has things to do.
sleep 10
echo "scheduler stock"
/job/stress $LOAD || exit 1
echo "scheduler home"
/job/nearq-scx start --no-memory --anyway --quiet -- /job/stress $LOAD || exit 1
[ "$(cat /sys/kernel/sched_ext/state)" = disabled ] || exit 1
echo "all is well"
