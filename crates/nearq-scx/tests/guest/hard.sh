# Runs in a virtual machine: a hard load under the scheduler for $SECONDS_OF_LOAD seconds, with CPUs that go offline and come back. In the
# second half, what CPUs take from other nodes is by the rule of 2003.
. /job/common.sh

. /job/settings
# The counters are asked for while it is loaded.
rule="sleep $((SECONDS_OF_LOAD / 2)) && $scx set own_bonus 1000"
load="/job/stress hard $SECONDS_OF_LOAD hotplug"
$scx start --no-memory -- sh -c "($rule) & $load && wait \$! && $scx metrics" >/tmp/out 2>&1
status=$?
cat /tmp/out
[ $status = 0 ] || fail "it ended with $status"
[ "$(cat /sys/kernel/sched_ext/state)" = disabled ] || fail "it is loaded yet"
echo "all is well"
