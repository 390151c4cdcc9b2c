# Runs in a virtual machine of two nodes of four CPUs: pages and tasks come together, by the task's way and, where it may not run
# beside its memory, by the pages'. Moving a page takes
# more than a millisecond here: the second has few.
scx=/job/nearq-scx

$scx start -- sh -c '
    /job/walker 2 || exit 1
    taskset f /job/walker 2 4 || exit 1
    /job/nearq-scx status | grep "checks of processes"
' 2>/tmp/errors
status=$?
cat /tmp/errors
[ $status = 0 ] || { echo "failed: $status"; exit 1; }
echo "all is well"
