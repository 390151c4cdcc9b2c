#!/bin/bash
# What a user of cargo gets: `cargo install` as docs/install.md has it, for a user whose home is empty, and everything that the command then
# does. Prints how long the build took.
#
#   cargo-install.sh PACKAGED FOLDER PROGRAM
#
# PACKAGED has the packages, as `packaging/publish.sh --dry-run` leaves them in `target/package/tmp-registry`. FOLDER, which must be
# empty, becomes the home, and a copy of crates.io with these packages and all others that Cargo.lock names. PROGRAM is a program with work
# queues, which the command inspects; it is given the arguments of the example `many_queues`.
set -euo pipefail
root=$(realpath "$(dirname "$(readlink -f "$0")")/..")
packaged=$(realpath "$1")
folder=$(realpath "$2")
program=$(realpath "$3")
cd "$root"

# cargo's form for a registry in a folder: a folder for each package, with its checksum.
registry=$folder/registry
cargo vendor --quiet --locked --versioned-dirs "$registry" >/dev/null
for package in "$packaged"/*.crate; do
    tar -xzf "$package" -C "$registry"
    checksum=$(sha256sum "$package" | cut -d' ' -f1)
    echo "{\"files\":{},\"package\":\"$checksum\"}" >"$registry/$(basename "$package" .crate)/.cargo-checksum.json"
done
home=$folder/home
mkdir -p "$home/.cargo"
cat >"$home/.cargo/config.toml" <<END
[source.crates-io]
replace-with = "folder"
[source.folder]
directory = "$registry"
END

# as_user COMMAND...: in the user's home, with an environment that has nothing but the toolchain.
tools=$(rustc --print sysroot)/bin
as_user() {
    (cd "$home" && env -i HOME="$home" PATH="$home/.cargo/bin:$tools:/usr/bin:/bin:/usr/sbin:/sbin" LC_ALL=C.UTF-8 "$@")
}
# typed NAME: runs commands of the page.
typed() {
    as_user bash -euc "$(.ci/commands-of.sh docs/install.md "$1")"
}

TIMEFORMAT="cargo install took %R s and %U s of CPU time, and %S s in the system, on $(nproc) CPUs"
time typed cargo-install >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log"
    exit 1
}
env -i HOME="$home" TMPDIR="$home" NEARQ_CONTROL=full "$program" 4 20000 600 >/dev/null &
process=$!
trap 'kill $process' EXIT
for _ in {1..100}; do
    [ ! -e "$home/nearq-$(id -u)/$process" ] || break
    sleep 0.1
done
command=$home/.cargo/bin/nearq
packaging/works.sh --process $process env -i HOME="$home" PATH=/usr/bin:/bin LC_ALL=C.UTF-8 TERM=xterm TMPDIR="$home" "$command"
if [ "$(id -u)" = 0 ]; then
    # The library of trees is inside. On a machine that is not changed, it may not be needed.
    tree=$(packaging/two-caches.sh env -i HOME="$home" PATH=/usr/bin:/bin unshare --mount bash -euc \
        'mount -t tmpfs tmpfs /var/cache && "$1" run --tree --scope cache -- grep -om1 "/[^ ]*libnearq_tree.*" /proc/self/maps' bash "$command") || [ $? = 77 ]
    [[ ${tree:-/var/cache/nearq/libnearq_tree-} == /var/cache/nearq/libnearq_tree-* ]] || {
        echo "a tree gets $tree"
        exit 1
    }
fi

# Completions and manual pages, and then the command, are removed again.
typed completions
as_user bash -c 'source ~/.local/share/bash-completion/completions/nearq && complete -p nearq' >/dev/null
test -s "$home/.local/share/man/man1/nearq-set.1"
typed completions-remove
typed cargo-uninstall >/dev/null 2>&1
left=$(find "$home" -type f ! -path "$home/.cargo/*" ! -path "$home/nearq-$(id -u)/*"; find "$home/.cargo/bin" -type f)
if [ -n "$left" ]; then
    printf 'this is left behind:\n%s\n' "$left"
    exit 1
fi
