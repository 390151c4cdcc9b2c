# What the scripts of this folder share: `source` this. It goes to the checkout's root.
#
# The scripts need bash, GNU coreutils and tar, binutils and cargo; deb.sh also dpkg-deb.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

target_folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target_folder
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The time of all files: that of the last commit, so that the same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# The prefix of a cross compiler's programs: aarch64-linux-gnu-, or nothing for this machine.
tools_of() {
    case $1 in
        "$(uname -m)"-*) ;;
        *-gnu) echo "${1/-unknown/}-" ;;
    esac
}

own=$(rustc -vV | sed -n 's/^host: //p')

# built TARGET: where releases for a target are.
built() {
    if [ "$1" = "$own" ]; then echo "$target_folder/release"; else echo "$target_folder/$1/release"; fi
}

# choose_fleet TARGET: sets `fleet`, cargo's options for a command that takes jobs from NATS JetStream, and `linked`, the crates of that
# command. Its TLS has some C: without a C compiler for the target the command cannot do so, and one line says that.
choose_fleet() {
    local variable=CC_${1//-/_} compiler package=gcc
    case $1 in
        "$own") compiler=cc ;;
        *-musl) compiler=musl-gcc package=musl-tools ;;
        *) compiler=$(tools_of "$1")gcc package=gcc-$(tools_of "$1") ;;
    esac
    compiler=${!variable:-$compiler}
    if command -v "$compiler" >/dev/null; then
        export "$variable=$compiler"
        fleet=(--features nearq-cli/fleet) linked=(nearq-cli nearq-fleet)
    else
        fleet=() linked=(nearq-cli)
        echo "$0: there is no C compiler $compiler, so the command will not take jobs from NATS JetStream; apt-get install ${package%-}, or set $variable" >&2
    fi
}

# builds TARGET ARGUMENT...: a release for a target.
builds() {
    local target=$1 tools variable
    shift
    tools=$(tools_of "$target")
    if [ -n "$tools" ]; then
        variable=$(tr a-z- A-Z_ <<<"CARGO_TARGET_${target}_LINKER")
        export "$variable=${!variable:-${tools}gcc}"
    fi
    if [ "$target" = "$own" ]; then
        cargo build --locked --release "$@"
    else
        cargo build --locked --release --target "$target" "$@"
    fi
}

# tree_library TARGET: the newest library of `nearq run --tree` that a build for the target made.
tree_library() {
    # shellcheck disable=SC2012 # cargo's names
    ls -t "$(built "$1")"/build/nearq-tree-*/out/libnearq_tree.so | head -n 1
}

# notices TARGET MANIFEST CRATE...: the copyright notices of a package with these crates of a workspace, and of all that they link.
notices() {
    local target=$1 manifest=$2
    shift 2
    cat packaging/copyright
    echo
    cargo xtask copyright "$manifest" "$target" "$@"
}
