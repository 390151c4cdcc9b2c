#!/bin/bash
# What a user begins with, by each TOOLCHAIN: a new crate in an empty folder, which depends on nearq by its version, and the first program of
# the README, which is built and run.
#
#   fresh-crate.sh PACKAGED FOLDER TOOLCHAIN...
#
# PACKAGED has the packages and their index, as `packaging/publish.sh --dry-run` leaves them in `target/package/tmp-registry`. FOLDER,
# which must be empty, becomes a registry of them, with a cargo home of its own. All other crates come from crates.io, in the newest versions
# that the toolchain can compile, since the crate is new and has no Cargo.lock.
set -euo pipefail
root=$(dirname "$(readlink -f "$0")")/..
packaged=$(realpath "$1")
folder=$(realpath "$2")
shift 2

cp -r "$packaged/index" "$folder/index"
# In the index that cargo has written, each dependency is one on crates.io. Ours are in this registry.
python3 - "$folder/index" "$packaged" <<'END'
import json, pathlib, sys

index, packaged = map(pathlib.Path, sys.argv[1:])
for entry in index.rglob("nearq*"):
    lines = []
    for line in map(json.loads, entry.read_text().splitlines()):
        for used in line["deps"]:
            if used["name"].startswith("nearq"):
                used["registry"] = None
        lines.append(json.dumps(line) + "\n")
    entry.write_text("".join(lines))
(index / "config.json").write_text(json.dumps({"dl": f"file://{packaged}/{{crate}}-{{version}}.crate"}))
END
git -C "$folder/index" init --quiet
git -C "$folder/index" add --all
git -C "$folder/index" -c user.name=nearq -c user.email=nearq -c commit.gpgsign=false commit --quiet --message index

# Where crates.io is reached by another address, that is set there.
home=${CARGO_HOME:-$HOME/.cargo}
mkdir "$folder/home"
[ ! -e "$home/config.toml" ] || cp "$home/config.toml" "$folder/home/"
export CARGO_HOME=$folder/home CARGO_REGISTRIES_LOCAL_INDEX=file://$folder/index
for toolchain in "$@"; do
    crate=$folder/fresh-$toolchain
    cargo "+$toolchain" new --quiet --vcs none --name fresh "$crate"
    awk '/^```rust$/ { inside = 1; next } inside && /^```$/ { exit } inside' "$root/README.md" >"$crate/src/main.rs"
    grep -q 'fn main' "$crate/src/main.rs"
    cd "$crate"
    unset CARGO_TARGET_DIR
    # The commands of the page, for this toolchain and this registry, and for Cargo.toml alone: they print what they do.
    typed=$("$root/.ci/commands-of.sh" "$root/docs/install.md" crate)
    bash -euc "cargo() { command cargo '+$toolchain' \"\$@\" --registry local --quiet; }; $typed"
    cargo "+$toolchain" run --quiet
    echo "the README's first program runs with Rust $(rustc "+$toolchain" --version | cut -d' ' -f2) in a new crate"
done
