#!/bin/bash
# Runs a command on a machine that looks as if each of its first two CPUs had a last cache of its own, so that `nearq run --scope cache` has
# two homes to place programs on: packaging/two-caches.sh COMMAND... Needs root, two CPUs and a last cache of level 3.
#
# Files of /sys, or of ROOT/sys if that variable is set, are covered in a mount namespace of the command's own. The exit status is 77 where
# that cannot be done.
set -euo pipefail

if [ "${1:-}" != --inside ]; then
    exec unshare --mount "$0" --inside "$@"
fi
shift
files=$(mktemp -d)
for cpu in 0 1; do
    cache=${ROOT:-}/sys/devices/system/cpu/cpu$cpu/cache/index3
    echo $cpu >"$files/list$cpu"
    printf '%x\n' $((1 << cpu)) >"$files/map$cpu"
    echo $cpu >"$files/id$cpu"
    mount --bind "$files/list$cpu" $cache/shared_cpu_list
    mount --bind "$files/map$cpu" $cache/shared_cpu_map
    mount --bind "$files/id$cpu" $cache/id
done || exit 77
# The mounts keep the files.
rm -r "$files"
exec taskset -c 0,1 "$@"
