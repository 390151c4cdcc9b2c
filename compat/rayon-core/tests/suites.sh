#!/bin/bash
# rayon's own tests on nearq:
#   compat/rayon-core/tests/suites.sh FOLDER [quick]
#
# rayon-core: its unit tests, its tests/ and its documentation tests, of which some must not compile. rayon: its unit tests, its tests/ and
# its documentation tests. With `quick` only rayon-core's unit tests and tests/, and some of rayon's tests/.
#
# The sources come from cargo's registry into FOLDER/vendor. There both manifests are changed, and no source:
# * rayon uses this crate, without default features: the feature `control` brings serde_json, whose comparisons with numbers make types in
#   rayon's own tests ambiguous, as any crate does that has such comparisons.
# * rayon-core's library has another name, so that its tests and examples find this crate under the usual one.
set -euo pipefail
folder=$(realpath -m "${1:?the folder}")
size=${2:-all}
ours=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
sources=$folder/vendor
export CARGO_TARGET_DIR=$folder/build
# The parts of rayon that use more of the pool than `join`.
quick=(--test cross-pool --test iter_panic --test named-threads --test par_bridge_recursion)

skip() {
    echo "skipped: rayon's own tests on nearq: $1; to have it: $2"
    exit 0
}

# Gets the sources. It says why it cannot.
fetch() {
    mkdir -p "$folder/src"
    : >"$folder/src/lib.rs"
    cat >"$folder/Cargo.toml" <<'MANIFEST'
[package]
name = "sources"
version = "0.0.0"
edition = "2024"
[dependencies]
rayon = "=1.12.0"
rayon-core = "=1.13.0"
[workspace]
MANIFEST
    rm -rf "$sources"
    cargo vendor --quiet --manifest-path "$folder/Cargo.toml" "$sources" || return 1
}

# Changes the manifests; see above.
change() {
    sed -i -e '/^\[dependencies\.rayon-core\]/a default-features = false' "$sources/rayon/Cargo.toml"
    cat >>"$sources/rayon/Cargo.toml" <<MANIFEST
[patch.crates-io]
rayon-core = { path = "$ours" }
[workspace]
MANIFEST
    sed -i -e 's/^name = "rayon-core"/name = "rayon-core-suite"/' -e 's/^name = "rayon_core"/name = "rayon_core_suite"/' -e '/^links = /d' \
        "$sources/rayon-core/Cargo.toml"
    cat >>"$sources/rayon-core/Cargo.toml" <<MANIFEST
[dev-dependencies.rayon-core]
path = "$ours"
default-features = false
[workspace]
MANIFEST
    # The versions of other crates are those that this crate is tested with.
    cp "$ours/Cargo.lock" "$sources/rayon/"
    cp "$ours/Cargo.lock" "$sources/rayon-core/"
}

if ! why=$(fetch 2>&1); then
    skip "their sources cannot be had ($(head -n 1 <<<"$why"))" "a way to cargo's registry"
fi
change

# suite NAME FOLDER OPTION...: runs cargo's tests of a package.
suite() {
    echo "== $1"
    timeout 1200 cargo test --quiet --manifest-path "$2/Cargo.toml" "${@:3}"
}

RAYON_CORE_SOURCE=$sources/rayon-core suite "rayon-core: unit tests" "$ours" --no-default-features --lib
suite "rayon-core: tests" "$sources/rayon-core" --test '*'
if [ "$size" = quick ]; then
    suite "rayon: some of its tests" "$sources/rayon" "${quick[@]}"
    exit
fi
suite "rayon-core: documentation tests" "$sources/rayon-core" --doc
suite "rayon: unit tests and tests" "$sources/rayon" --lib --test '*'
suite "rayon: documentation tests" "$sources/rayon" --doc
