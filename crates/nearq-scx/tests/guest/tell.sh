# Runs in a virtual machine of two nodes of four CPUs: homes that are told, and the tasks that inherit them. Each line `ok: WHAT` is a
# test that passed; the last line says that it came to the end.
. /job/common.sh
nearq=/job/nearq

loaded() { $scx status 2>&1 | grep -q '^ *0 *0-3 '; }
# A thread's row: `row THREAD HOME REASON`.
row() { $scx status --task "$1" 2>/dev/null | grep -q "^ *[0-9]* *$1 *$2 .* $3\$"; }
told() { row "$1" "$2" told; }
all_told() {
    node=$1
    shift
    for one in "$@"; do
        told "$one" "$node" || fail "$one is not told node $node: $($scx status --task "$one")"
    done
}

$scx start >/tmp/start 2>&1 &
start=$!
await loaded || fail "it does not come up: $(cat /tmp/start)"

# What this shell starts: one that is only forked, a program, a shell, and a program that this starts.
family() {
    rm -f /tmp/shell /tmp/grandchild
    (while :; do sleep 0.1; done) &
    forked=$!
    sleep 1000 &
    program=$!
    sh -c 'echo $$ >/tmp/shell; sleep 1000 & echo $! >/tmp/grandchild; wait' &
    await [ -s /tmp/grandchild ] || fail "no grandchild"
    # It has executed its program by then.
    sleep 0.5
    everybody="$forked $program $(cat /tmp/shell) $(cat /tmp/grandchild)"
}

for node in 1 0; do
    $scx tell $$ $node || fail "telling"
    family
    all_told $node $everybody
    eval "family_$node=\"\$everybody\""
done
await told $$ 0 || fail "the shell itself: $($scx status --task $$)"
all_told 1 $family_1
echo "ok: children inherit a told home, and their children, forked and over programs"

$scx tell $$ --forget || fail "forgetting"
family
for one in $everybody; do
    $scx status --task "$one" | grep -q "^ *$one *$one *[01] .*picked when" || fail "$one: $($scx status --task "$one")"
done
await row $$ 0 'told, then taken back' || fail "the shell itself: $($scx status --task $$)"
all_told 1 $family_1
echo "ok: when it is taken back, new children are free again, and those that have it keep it"

set -- $family_1
$scx tell "$1" 0 && await told "$1" 0 || fail "an heir is told: $($scx status --task "$1")"
$scx tell "$1" --forget && await row "$1" 0 'told, then taken back' || fail "an heir: $($scx status --task "$1")"
echo "ok: what an heir is told counts more, and can be taken back"

kill $family_0 $family_1 $everybody
$scx tell "$2" --forget 2>/tmp/out
[ $? = 2 ] && grep -q 'no home was told' /tmp/out || fail "nothing was told of an heir itself: $(cat /tmp/out)"

cat >/tmp/job.sh <<'END'
echo $$ >/tmp/job
sleep 3
sleep 1000 &
echo $! >/tmp/of_job
while :; do :; done
END
run() {
    rm -f /tmp/job /tmp/of_job
    $nearq run "$@" sh /tmp/job.sh ::: 1 >/tmp/run 2>&1 &
    run=$!
    await [ -s /tmp/of_job ] || fail "no job: $(cat /tmp/run)"
    sleep 0.5
}
run --home 1
await told "$(cat /tmp/job)" 1 || fail "the job: $($scx status --task "$(cat /tmp/job)")"
all_told 1 "$(cat /tmp/of_job)"
kill $run
wait $run
await [ ! -e "/proc/$(cat /tmp/job)" ] || fail "the job lives"
$scx tell "$(cat /tmp/job)" --forget 2>/tmp/out
[ $? = 2 ] && grep -q 'no home was told' /tmp/out || fail "it is still told of the job that ended: $(cat /tmp/out)"
run --home none
$scx status --task "$(cat /tmp/job)" | grep -q 'told$' && fail "without homes: $($scx status --task "$(cat /tmp/job)")"
kill $run
wait $run
echo "ok: nearq run tells the homes of its jobs"

/job/home_hints /tmp/leave >/tmp/told &
program=$!
thread() { sed -n "s/^$1 //p" /tmp/told; }
is_there() { [ -n "$(thread "$1")" ]; }
for name in worker anywhere entered first; do
    await is_there $name || fail "no $name: $(cat /tmp/told)"
done
await told "$(thread worker)" 1 || fail "the worker: $($scx status --task $program)"
await told "$(thread entered)" 1 || fail "the thread that entered: $($scx status --task $program)"
await told "$(thread first)" 0 || fail "the first thread alone: $($scx status --task $program)"
told "$(thread anywhere)" '[01]' && fail "a worker of all nodes: $($scx status --task $program)"
: >/tmp/leave
await is_there left || fail "it does not leave: $(cat /tmp/told)"
await row "$(thread left)" 1 'told, then taken back' || fail "the thread that left: $($scx status --task $program)"
echo "ok: workers of one node and threads that enter a home tell theirs, the first thread too"

# What is told of the process is a different matter.
$scx tell $program 1 && await told "$(thread anywhere)" 1 || fail "the process: $($scx status --task $program)"
told "$(thread first)" 0 || fail "the first thread has lost its own home: $($scx status --task $program)"
$scx tell $program --forget && await row "$(thread anywhere)" 1 'told, then taken back' || fail "forgetting: $($scx status --task $program)"
told "$(thread first)" 0 || fail "the first thread's own home is forgotten: $($scx status --task $program)"
echo "ok: the first thread's home and the process's are told apart"

kill -TERM $start
wait $start
$scx start >/tmp/start 2>&1 &
start=$!
await loaded || fail "it does not come up again: $(cat /tmp/start)"
await told "$(thread worker)" 1 || fail "the worker: $($scx status --task $program)"
echo "ok: a worker tells a scheduler that is loaded later"

hinted() { $scx metrics | awk '/^nearq_scx_hinted_total/ { sum += $2 } END { exit !(sum > 20) }'; }
await hinted || fail "no wake-up near the CPU that queued: $($scx metrics)"
kill $program
echo "ok: workers of a localised queue wake up near the CPU that queued"

kill -TERM $start
wait $start
[ $? = 0 ] || fail "its end: $(cat /tmp/start)"
echo "all is well"
