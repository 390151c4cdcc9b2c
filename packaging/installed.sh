#!/bin/bash
# Installs packages in a Debian in a folder, by the commands of docs/install.md, runs what they have, removes them, and checks that nothing
# is left: packaging/installed.sh FOLDER PROGRAM PACKAGE... Needs root.
#
# PROGRAM has work queues, and is inspected; it is given the arguments of the example `many_queues`.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

# In a mount namespace of its own, which ends with the script: nothing is unmounted where others could notice. And in a PID namespace:
# what the script leaves running ends with it.
if [ "${1:-}" != --inside ]; then
    exec unshare --mount --pid --fork --kill-child "$0" --inside "$@"
fi
shift
root=$1
program=$2
shift 2
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=xterm DEBIAN_FRONTEND=noninteractive "$@"
}
# typed NAME: runs commands of the page, where the packages are.
typed() {
    inside bash -euc "cd /tmp/packages
$("$here/../.ci/commands-of.sh" "$here/../docs/install.md" "$1")" >/dev/null
}
has_package() {
    compgen -G "$root/tmp/packages/$1_*.deb" >/dev/null
}
fail() {
    printf 'packaging/installed.sh: %s\n' "$*" >&2
    exit 1
}
# What dpkg and apt themselves write does not count.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache/apt \
        -o -path ./var/log -o -path ./tmp -o -path ./var/cache/ldconfig -o -path ./etc/ld.so.cache \) -prune -o -print | sort)
}
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t devpts -o ptmxmode=0666 devpts "$root/dev/pts"

mkdir -p "$root/tmp/packages"
cp "$@" "$root/tmp/packages"
# In place of an answer to the question whether to go on; and what the packages depend on, which may stay.
echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/answers"
for package in "$@"; do
    dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/(.*//; s/|.*//' | xargs
done | tr ' ' '\n' | sort -u | xargs chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends >/dev/null
before=$(files)
typed deb-install
! has_package nearq-scx || typed deb-install-scx

cp "$program" "$root/tmp/program"
inside env NEARQ_CONTROL=full /tmp/program 4 20000 600 >/dev/null &
for _ in {1..100}; do
    process=$(inside nearq ps --json | sed -n 's/^    "pid": \([0-9]*\),$/\1/p' | head -n 1)
    [ -z "$process" ] || break
    sleep 0.1
done
[ -n "$process" ] || fail "no process can be inspected"
"$here/works.sh" --process "$process" --experiments chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=xterm nearq

test "$(inside env LD_PRELOAD=/usr/lib/nearq/libnearq_preload.so NEARQ_LOCK=plain echo loaded 2>&1)" = loaded
# The library of trees is found where the package has it, and is loaded.
tree=$(ROOT=$root "$here/two-caches.sh" chroot "$root" nearq run --tree --scope cache -- grep -om1 '/[^ ]*libnearq_tree.*' /proc/self/maps) || [ $? = 77 ]
[ "${tree:-/usr/lib/nearq/libnearq_tree.so}" = /usr/lib/nearq/libnearq_tree.so ] || fail "a tree gets $tree"
for file in man/man1/nearq.1.gz man/man1/nearq-set.1.gz man/man1/nearq-bench-scopes.1.gz bash-completion/completions/nearq doc/nearq/copyright; do
    test -s "$root/usr/share/$file" || fail "there is no $file"
done
inside bash -c 'source /usr/share/bash-completion/completions/nearq && complete -p nearq' >/dev/null
if has_package nearq-scx; then
    inside nearq-scx --version
    test -s "$root/usr/lib/systemd/system/nearq-scx.service"
fi

typed deb-remove
! has_package nearq-scx || typed deb-remove-scx
left=$(diff <(echo "$before") <(files) | grep '^[<>]' || true)
[ -z "$left" ] || fail "the packages leave behind or remove:
$left"
