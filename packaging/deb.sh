#!/bin/bash
# Makes Debian packages: packaging/deb.sh OUT [TARGET]
#
# OUT gets nearq_VERSION_ARCH.deb, and nearq-scx_VERSION_ARCH.deb if nearq-scx can be built (crates/nearq-scx/README.md says what for) and the
# target is this machine's. TARGET is x86_64-unknown-linux-gnu (amd64) or aarch64-unknown-linux-gnu (arm64); this machine's if not given.
# Another one needs its standard library (`rustup target add`) and a cross compiler (gcc-aarch64-linux-gnu, libc6-dev-arm64-cross).
source "$(dirname "$(readlink -f "$0")")/lib.sh"

target=${2:-$own}
case $target in
    x86_64-*) architecture=amd64 ;;
    aarch64-*) architecture=arm64 ;;
    *)
        echo "packaging/deb.sh: no packages for $target; give x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu" >&2
        exit 2
        ;;
esac
mkdir -p "${1:?packaging/deb.sh OUT [TARGET]: give a folder}"
out=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=$(tools_of "$target")
# The variables by which Debian's own tools know a packager.
maintainer="${DEBFULLNAME:-The nearq developers} <${DEBEMAIL:-nearq@users.noreply.github.com}>"

# program FILE FOLDER: puts a program or a library into a folder, without what only a debugger needs.
program() {
    install -D -m "${3:-755}" "$1" "$2/$(basename "$1")"
    "${tools}strip" --strip-unneeded --remove-section=.comment "$2/$(basename "$1")"
}

# shell_files COMMAND ROOT: manual pages and completions, which the command itself makes.
shell_files() {
    local name share=$2/usr/share
    name=$(basename "$1")
    mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    "$1" man "$share/man/man1"
    gzip -9n "$share"/man/man1/*.1
    "$1" completions bash >"$share/bash-completion/completions/$name"
    "$1" completions zsh >"$share/zsh/vendor-completions/_$name"
    "$1" completions fish >"$share/fish/vendor_completions.d/$name.fish"
}

# libc_of FILE...: the version of the C library that they need.
libc_of() {
    "${tools}objdump" -T "$@" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -Vu | tail -n 1
}

# finish NAME ROOT DEPENDS DESCRIPTION: the documentation and the package. The copyright file is there.
finish() {
    local name=$1 root=$2 documentation=$2/usr/share/doc/$1
    mkdir -p "$root/DEBIAN"
    {
        echo "$name ($version) unstable; urgency=medium"
        printf '\n  * See CHANGELOG.md in the sources.\n\n'
        echo " -- $maintainer  $(date -Ru -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$documentation/changelog.gz"
    {
        echo "Package: $name"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Section: utils"
        echo "Priority: optional"
        echo "Maintainer: $maintainer"
        echo "Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)"
        echo "Depends: $3"
        echo "Description: $4"
    } >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    chmod -R u=rwX,go=rX "$root"
    find "$root" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/${name}_${version}_$architecture.deb"
}

choose_fleet "$target"
builds "$target" -p nearq-cli -p nearq-bench -p nearq-preload "${fleet[@]}"
[ "$target" = "$own" ] || builds "$own" -p nearq-cli -p nearq-bench
from=$(built "$target")
root=$work/nearq
program "$from/nearq" "$root/usr/bin"
program "$from/nearq-bench" "$root/usr/bin"
program "$(tree_library "$target")" "$root/usr/lib/nearq" 644
program "$from/libnearq_preload.so" "$root/usr/lib/nearq" 644
shell_files "$(built "$own")/nearq" "$root"
mkdir -p "$root/usr/share/doc/nearq"
notices "$target" Cargo.toml "${linked[@]}" nearq-bench nearq-preload >"$root/usr/share/doc/nearq/copyright"
finish nearq "$root" "libc6 (>= $(libc_of "$root"/usr/bin/* "$root"/usr/lib/nearq/*)), libgcc-s1 (>= 4.2)" \
    "inspects, tunes and places programs on machines with many caches and nodes
 The command nearq inspects and tunes programs that use the work queues of the
 Rust library nearq, while they run. It also runs unchanged programs so that
 each stays with its memory on one NUMA node.
 .
 nearq-bench has experiments, on this machine and on simulated ones.
 /usr/lib/nearq/libnearq_preload.so is a mutex to preload into programs."

[ "$target" = "$own" ] || exit 0
if ! (cd crates/nearq-scx && CARGO_TARGET_DIR=$target_folder/scx cargo build --locked --release); then
    echo "packaging/deb.sh: nearq-scx cannot be built here, so there is no package of it; its README.md says what it needs" >&2
    exit 0
fi
root=$work/nearq-scx
program "$target_folder/scx/release/nearq-scx" "$root/usr/bin"
shell_files "$target_folder/scx/release/nearq-scx" "$root"
mkdir -p "$root/usr/share/doc/nearq-scx"
notices "$target" crates/nearq-scx/Cargo.toml nearq-scx >"$root/usr/share/doc/nearq-scx/copyright"
install -D -m 644 packaging/nearq-scx.service "$root/usr/lib/systemd/system/nearq-scx.service"
install -D -m 755 packaging/nearq-scx.prerm "$root/DEBIAN/prerm"
finish nearq-scx "$root" "libc6 (>= $(libc_of "$root"/usr/bin/*)), libelf1 (>= 0.142) | libelf1t64, libgcc-s1 (>= 4.2), zlib1g" \
    "CPU scheduler that knows the home node of each task
 A scheduler that a running kernel loads and unloads (sched_ext, Linux 6.12 or
 later). Each task of the machine has a home node and runs there while there is
 room; no CPU idles for it.
 .
 Installing the package does not start it: systemctl enable --now nearq-scx"
