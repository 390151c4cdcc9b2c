#!/bin/bash
# Installs packages in a Debian in a folder, runs the commands, removes the packages, and checks that nothing is left:
# packaging/installed.sh FOLDER PACKAGE... Needs root.
set -euo pipefail

# In a mount namespace of its own, which ends with the script: nothing is unmounted where others could notice.
if [ "${1:-}" != --inside ]; then
    exec unshare --mount "$0" --inside "$@"
fi
shift
root=$1
shift
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
# What dpkg and apt themselves write does not count.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache/apt \
        -o -path ./var/log -o -path ./tmp -o -path ./var/cache/ldconfig -o -path ./etc/ld.so.cache \) -prune -o -print | sort)
}
mount -t proc proc "$root/proc"
mount --bind /sys "$root/sys"

mkdir -p "$root/tmp/packages"
cp "$@" "$root/tmp/packages"
# What the packages depend on, first: it may stay.
for package in "$@"; do
    dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/(.*//; s/|.*//' | xargs
done | tr ' ' '\n' | sort -u | xargs chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends >/dev/null
before=$(files)
inside sh -c 'dpkg --install /tmp/packages/*.deb' >/dev/null

inside nearq --version
inside nearq topo >/dev/null
inside nearq run -k echo ::: a b | diff - <(printf 'a\nb\n')
inside nearq bench --help >/dev/null
test "$(inside env LD_PRELOAD=/usr/lib/nearq/libnearq_preload.so NEARQ_LOCK=plain echo loaded 2>&1)" = loaded
# The library of trees is found where the package has it, and loads. A machine with one node needs none, so it is loaded by hand.
test "$(inside env LD_PRELOAD=/usr/lib/nearq/libnearq_tree.so echo loaded 2>&1)" = loaded
for file in man/man1/nearq.1.gz man/man1/nearq-set.1.gz man/man1/nearq-bench-scopes.1.gz bash-completion/completions/nearq doc/nearq/copyright; do
    test -s "$root/usr/share/$file" || {
        echo "packaging/installed.sh: there is no $file" >&2
        exit 1
    }
done
inside bash -c 'source /usr/share/bash-completion/completions/nearq && complete -p nearq' >/dev/null
if [ -e "$root/usr/bin/nearq-scx" ]; then
    inside nearq-scx --version
    test -s "$root/usr/lib/systemd/system/nearq-scx.service"
fi

for package in "$@"; do dpkg-deb --field "$package" Package; done | xargs chroot "$root" dpkg --purge >/dev/null
left=$(diff <(echo "$before") <(files) | grep '^[<>]' || true)
if [ -n "$left" ]; then
    printf 'packaging/installed.sh: the packages leave behind or remove:\n%s\n' "$left" >&2
    exit 1
fi
