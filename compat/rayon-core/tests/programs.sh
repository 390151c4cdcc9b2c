#!/bin/bash
# Real programs on nearq and on rayon's own pools: compat/rayon-core/tests/programs.sh FOLDER [ROUNDS]
#
# The programs of rayon-demo, b3sum, oxipng, tokei and rav1e are built twice, into FOLDER/stock and FOLDER/patched. Only the second time
# with this crate, which a patch puts into the place of rayon-core; everything else is the same. programs.py runs them: it compares what
# they print, and if ROUNDS is not 0, measures them that many times and writes FOLDER/rayon-programs.txt and .json.
#
# The sources come from cargo's registry; rayon-demo's are in rayon's repository only, of which RAYON_REPOSITORY may name a clone.
set -euo pipefail
folder=$(realpath -m "${1:?the folder}")
rounds=${2:-7}
tests=$(dirname "$(readlink -f "$0")")
ours=$(dirname "$tests")
repository=${RAYON_REPOSITORY:-https://github.com/rayon-rs/rayon}
programs=(b3sum@1.8.7 oxipng@10.2.1 tokei@15.0.0)
# Cargo looks for settings in the folders above the one where it runs.
mkdir -p "$folder"
cd "$folder"
export CARGO_TARGET_DIR=$folder/build

# shellcheck source=.ci/packages.sh
source "$tests/../../../.ci/packages.sh"

if ! command -v python3 >/dev/null; then
    skip "real programs on rayon's interface" "there is no python3" "apt-get install python3"
    exit 0
fi
if ! why=$(cargo info --quiet "${programs[0]}" 2>&1); then
    skip "real programs on rayon's interface" "their sources cannot be had ($(head -n 1 <<<"$why"))" "a way to cargo's registry"
    exit 0
fi
# Without nasm rav1e has no assembly, and would take minutes.
if has nasm nasm "rav1e on rayon's interface"; then
    programs+=(rav1e@0.8.1)
fi
rm -rf rayon stock patched
if git clone --quiet --depth 1 --branch v1.12.0 "$repository" rayon 2>clone.errors; then
    # rayon-core comes from the registry in both variants, so that the patch can take its place.
    sed -i -e 's/^rayon-core = .*/rayon-core = "=1.13.0"/' -e 's/^members = .*/members = ["rayon-demo"]/' rayon/Cargo.toml
    programs+=(rayon-demo)
else
    skip "rayon-demo on rayon's interface" "rayon's repository cannot be had ($(tail -n 1 clone.errors))" \
        "RAYON_REPOSITORY=FOLDER, a clone that has the tag v1.12.0"
fi

# build VARIANT OPTION...: installs the programs there. Not with --locked: the programs' lock files name older versions than nearq needs.
# Without it, both variants get the newest versions of what the programs use.
#
# Loops begin at a multiple of 64 bytes in both. Otherwise where the linker happens to put a loop decides: matmul's innermost loop, which is
# the same code in both, took a third longer in one of them, with one thread too.
export RUSTFLAGS="-C llvm-args=-align-loops=64"
build() {
    local program
    for program in "${programs[@]}"; do
        if [ "$program" = rayon-demo ]; then
            program="--path=rayon/rayon-demo"
        fi
        cargo install --quiet --force --root "$1" "$program" "${@:2}"
    done
}
# What tokei counts.
cargo vendor --quiet --locked --manifest-path "$ours/../../Cargo.toml" vendor >/dev/null
build stock
build patched --config "patch.crates-io.rayon-core.path=\"$ours\""

# Cargo only warns if it did not use the patch.
for program in patched/bin/*; do
    if ! grep -q NEARQ_RAYON_SCOPE "$program"; then
        echo "$program was built without nearq: a rayon-core newer than this crate may have been published" >&2
        exit 1
    fi
done

exec python3 "$tests/programs.py" "$folder" "$rounds"
