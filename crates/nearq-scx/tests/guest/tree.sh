# Runs in a virtual machine of two nodes of four CPUs: programs of `nearq run --tree` tell their homes to the loaded scheduler. Each line
# `ok: WHAT` is a test that passed; the last line says that it came to the end.
. /job/common.sh
nearq=/job/nearq

loaded() { $scx status 2>&1 | grep -q '^ *0 *0-3 '; }
# `told THREAD NODE`: whether that is the home of which the scheduler was told.
told() { $scx status --task "$1" 2>/dev/null | grep -q "^ *[0-9]* *$1 *$2 .* told\$"; }
there() { [ "$(wc -l <"$1" 2>/dev/null)" = "$2" ]; }

$scx start >/tmp/start 2>&1 &
start=$!
await loaded || fail "it does not come up: $(cat /tmp/start)"

# `dash` is linked dynamically. It computes without starting another program.
cat >/tmp/work.sh <<'END'
echo $$ >>/tmp/workers
until [ -e /tmp/over ]; do :; done
END
cat >/tmp/tree.sh <<'END'
for one in 1 2 3 4; do /job/dash /tmp/work.sh & done
wait
exit 7
END

$nearq run --tree -- /job/dash /tmp/tree.sh >/tmp/run 2>&1 &
run=$!
await there /tmp/workers 4 || fail "the programs do not begin: $(cat /tmp/run)"
nodes=
for one in $(cat /tmp/workers); do
    told "$one" 0 && node=0 || node=1
    await told "$one" $node || fail "no home of $one is told: $($scx status --task "$one") $(cat /tmp/run)"
    case $(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "/proc/$one/status") in
    0-3) mask=0 ;;
    4-7) mask=1 ;;
    *) mask=$node ;; # let out of its home, because the node is crowded
    esac
    [ $mask = $node ] || fail "$one runs on node $mask, and node $node was told"
    nodes="$nodes $node"
done
case "$nodes" in *0*1* | *1*0*) ;; *) fail "all on one node:$nodes" ;; esac
echo "ok: each program of a tree tells the home that it has chosen"

workers=$(cat /tmp/workers)
: >/tmp/over
wait $run
status=$?
[ $status = 7 ] || fail "the command's status: $status $(cat /tmp/run)"
for one in $workers; do
    $scx tell "$one" --forget 2>/tmp/out
    [ $? = 2 ] || fail "it is still told of $one, which has ended: $(cat /tmp/out)"
done
echo "ok: what ended programs told is forgotten"

# Without the scheduler the tree has its homes as ever.
kill -TERM $start
wait $start
rm -f /tmp/over /tmp/workers
$nearq run --tree -- /job/dash /tmp/tree.sh >/tmp/run 2>&1 &
run=$!
await there /tmp/workers 4 || fail "the programs do not begin: $(cat /tmp/run)"
: >/tmp/over
wait $run
[ $? = 7 ] || fail "without the scheduler: $(cat /tmp/run)"
echo "ok: without the scheduler nothing is told, and the tree runs"
echo "all is well"
