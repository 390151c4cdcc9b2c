# Runs in a virtual machine: a hard load under the scheduler for $SECONDS_OF_LOAD seconds, with CPUs that go offline and come back.
. /job/common.sh

. /job/settings
# The counters are asked for while it is loaded.
$scx start --no-memory -- sh -c "/job/stress hard $SECONDS_OF_LOAD hotplug && /job/nearq-scx metrics" >/tmp/out 2>&1
status=$?
cat /tmp/out
[ $status = 0 ] || fail "it ended with $status"
[ "$(cat /sys/kernel/sched_ext/state)" = disabled ] || fail "it is loaded yet"
echo "all is well"
