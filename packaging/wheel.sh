#!/bin/bash
# Makes Python wheels of the module and the command nearq: packaging/wheel.sh OUT [INTERPRETER...]
#
# OUT gets one wheel for all versions of CPython with a global lock, from 3.11 on, and one for each INTERPRETER without such a lock. The
# wheels are for this machine's processor. It needs Python 3.11 or newer with the package venv, and pip gets maturin from the index.
#
# The command in the wheels is a release of nearq-cli. If the standard library of musl is installed (`rustup target add
# x86_64-unknown-linux-musl`), it is one static program; otherwise it needs a C library as new as this machine's. The tag of a wheel says
# how new a C library the module needs, as maturin finds by the symbols: to serve older systems, build on one.
source "$(dirname "$(readlink -f "$0")")/lib.sh"

mkdir -p "${1:?packaging/wheel.sh OUT [INTERPRETER...]: give a folder}"
out=$(realpath "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}

static=$(uname -m)-unknown-linux-musl
if [ -d "$(rustc --print target-libdir --target "$static")" ]; then target=$static; else target=$own; fi
choose_fleet "$target"
builds "$target" -p nearq-cli "${fleet[@]}"

# A copy of what the wheels are made of, with the same folders around it: the command is put there, and nothing is left in the checkout.
mkdir "$work/sources"
sources=(Cargo.toml Cargo.lock LICENSE-MIT LICENSE-APACHE crates examples python verify xtask)
git ls-files -z --cached --others --exclude-standard -- "${sources[@]}" |
    xargs -0 tar -c --ignore-failed-read | tar -x -C "$work/sources"
mkdir -p "$work/sources/python/nearq.data/scripts"
strip --strip-unneeded -o "$work/sources/python/nearq.data/scripts/nearq" "$(built "$target")/nearq"
chmod 755 "$work/sources/python/nearq.data/scripts/nearq"
# Not in the checkout's own file: there is no such folder, and then maturin builds nothing.
sed -i '/^\[tool\.maturin\]/a data = "nearq.data"' "$work/sources/python/pyproject.toml"

"$python" -m venv "$work/venv"
pip=("$work/venv/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" 'maturin>=1.9,<2'
export CARGO_TARGET_DIR=$target_folder/wheel
cd "$work/sources/python"
for interpreter in "$python" "$@"; do
    PATH=$work/venv/bin:$PATH maturin build --release --locked --strip --out "$out" --interpreter "$interpreter"
done
