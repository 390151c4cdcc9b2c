# Runs in a virtual machine of two nodes of four CPUs: the command from beginning to end. Each line `ok: WHAT` is a test that
# passed; the last line says that it came to the end.
. /job/common.sh
pins=/sys/fs/bpf/nearq

is() { [ "$(cat $state)" = "$1" ]; }
shown() { $scx status 2>&1 | grep -q "$1"; }
began_anew() { grep -q 'restarted in .*CPU 5 was offline' /tmp/start; }
# So many tasks want a CPU, on all nodes, or fewer; the one that asks does too.
want_at_most() { $scx metrics | awk -v most="$1" '/^nearq_scx_wanting[{]/ { sum += $2 } END { exit !NR || sum > most }'; }
home_is() { $scx status --task "$1" 2>/dev/null | grep -q "^ *$1 *$1 *$2 "; }

$scx status >/tmp/out 2>&1
[ $? = 2 ] && grep -q "not loaded.*nearq-scx start" /tmp/out || fail "status without a scheduler: $(cat /tmp/out)"
echo "ok: status says that it is not loaded"

$scx start -- sh -c 'cat /sys/kernel/sched_ext/root/ops; exit 7' >/tmp/out 2>&1
status=$?
grep -q '^nearq_home' /tmp/out && [ $status = 7 ] || fail "a command under it: $status $(cat /tmp/out)"
await is disabled || fail "it is loaded after its command has ended"
[ ! -e $pins ] || fail "pins are left"
echo "ok: a command runs under it and says how it ends"

$scx start -- /job/no-such-program >/tmp/out 2>&1
[ $? = 127 ] && await is disabled || fail "a command that is not there: $(cat /tmp/out)"
echo "ok: a command that is not there ends it"

# Loading takes long while they work: the emulated CPUs are many, and the real ones few.
rest() { kill -STOP $hogs; }
work() { kill -CONT $hogs; }

hogs=
for hog in 1 2 3 4 5 6; do
    (while :; do :; done) &
    hogs="$hogs $!"
done
rest
$scx start >/tmp/start 2>&1 &
start=$!
await shown '^ *0 *0-3 ' || fail "it does not come up: $(cat /tmp/start)"
work
grep -q 'loaded in .* 8 CPUs, 4 caches, 2 nodes; homes may be set by root only' /tmp/start || fail "$(cat /tmp/start)"
echo "ok: it is loaded: $(cat /tmp/start)"

# The kernel gives up at a million steps for one program, and a slow computer takes minutes for so many.
steps=$(sed -n 's/^verified_insns:[[:space:]]*//p' /proc/$start/fdinfo/* 2>/dev/null | sort -n | tail -n 1)
[ "${steps:-0}" -gt 0 ] && [ "$steps" -le 200000 ] || fail "the kernel took ${steps:-an unknown number of} steps to check one program"
echo "ok: the kernel checks each program in 200000 steps at most"

$scx start >/tmp/out 2>&1
[ $? = 2 ] && grep -q "loaded already, by process $start" /tmp/out || fail "a second one: $(cat /tmp/out)"
echo "ok: a second one is refused"

$scx status --json | grep -q '"loaded": true' || fail "JSON: $($scx status --json)"
$scx metrics --format openmetrics | tail -n 1 | grep -q '^# EOF$' || fail "metrics: $($scx metrics)"
$scx top --times 2 | grep -q '^woke_previous ' || fail "top"
echo "ok: status, top and metrics show it"

set -- $hogs
for node in 0 1 0; do
    $scx tell "$1" $node || fail "telling"
    await home_is "$1" $node || fail "the home of $1 is not $node: $($scx status --task "$1")"
done
$scx status --task "$1" | grep -q ' told$' || fail "why: $($scx status --task "$1")"
$scx tell "$1" 7 2>/tmp/out
[ $? = 2 ] && grep -q 'no such node with CPUs; the nodes are 0, 1' /tmp/out || fail "node 7: $(cat /tmp/out)"
echo "ok: homes are told"

$scx set stay 50ms | grep -q '^stay: 50ms (was 20ms)$' && shown 'stay=50ms' || fail "a weight is set"
echo "ok: weights are set"

# Two want the same CPU: one waits. It does not count when it is a real-time task, whether it waited or ran before.
taskset -p 4 "$1" >/dev/null && taskset -p 4 "$2" >/dev/null || fail "no CPU of their own"
for round in 1 2 3 4 5 6; do
    /job/stress class "$1" real-time || fail "no real-time task"
    await want_at_most 6 || fail "it is still counted: $($scx status)"
    /job/stress class "$1" ordinary || fail "a real-time task for ever"
done
taskset -p ff "$1" >/dev/null && taskset -p ff "$2" >/dev/null || fail "not all CPUs again"
echo "ok: tasks leave the scheduler and come back"

for cpu in 3 6 3; do
    echo 0 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu does not go"
    case $cpu in
    3) await shown '^ *0 *0-2 ' || fail "CPU 3 is still there: $($scx status)" ;;
    6) await shown '^ *1 *4-5,7 ' || fail "CPU 6 is still there: $($scx status)" ;;
    esac
    echo 1 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu does not come back"
    await shown '^ *0 *0-3 ' && await shown '^ *1 *4-7 ' || fail "CPU $cpu is not there again"
done
kill -0 $start && is enabled || fail "it did not survive: $(cat /tmp/start)"
echo "ok: CPUs go and come under load"

kill -9 $start
await is disabled || fail "the kernel did not go back to its own"
[ -e $pins/state ] || fail "there are no pins that it left"
$scx status >/tmp/out 2>&1
[ $? = 2 ] && grep -q "not loaded" /tmp/out || fail "status after it was killed: $(cat /tmp/out)"
echo "ok: killed, the kernel's own scheduler is back"

# CPU 5 is offline when it begins, so that its cache is unknown.
rest
echo 0 >/sys/devices/system/cpu/cpu5/online
$scx start --tellers everybody >/tmp/start 2>&1 &
start=$!
await shown '^ *1 *4,6-7 ' || fail "it does not come up again: $(cat /tmp/start)"
work
grep -q 'removed the pins' /tmp/start || fail "$(cat /tmp/start)"
grep -q 'loaded in .* 7 CPUs, 4 caches, 2 nodes' /tmp/start || fail "$(cat /tmp/start)"
[ "$(stat -c %a $pins/told 2>/dev/null || echo 666)" = 666 ] || fail "told is not everybody's"
echo "ok: it is loaded again after it was killed"

$scx tell "$1" 1 || fail "telling"
echo 1 >/sys/devices/system/cpu/cpu5/online
await shown '^ *1 *4-7 ' || fail "CPU 5 does not come: $($scx status) $(cat /tmp/start)"
await began_anew || fail "it did not begin anew: $($scx status) $(cat /tmp/start)"
await home_is "$1" 1 || fail "what was told is forgotten"
echo "ok: a CPU that it did not know comes: $(tail -n 1 /tmp/start)"

kill -TERM $start
wait $start
[ $? = 0 ] && grep -q 'unloaded (SIGTERM)' /tmp/start || fail "its end: $(cat /tmp/start)"
await is disabled && [ ! -e $pins ] || fail "something is left: $(cat $state) $(ls $pins)"
echo "ok: it goes when it is asked to"

rest
$scx start >/tmp/start 2>&1 &
start=$!
await shown '^ *0 *0-3 ' || fail "it does not come up: $(cat /tmp/start)"
work
# The administrator's key that resets the scheduler.
echo S >/proc/sysrq-trigger
wait $start
[ $? = 1 ] && grep -q 'the kernel has unloaded the scheduler.*: .*sysrq' /tmp/start || fail "thrown out: $(cat /tmp/start)"
[ ! -e $pins ] || fail "pins are left"
echo "ok: thrown out by the kernel it says so: $(tail -n 1 /tmp/start)"

kill $hogs
echo "all is well"
