# What the steps of the checks share. Each step begins with: source "$(dirname "$0")/../lib.sh"
#
# It goes to the checkout's root, chooses the target directory, and defines how a step says that it skips something, how it has a
# tool installed, and what several steps need to know of this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=.ci/packages.sh
source .ci/packages.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target"
export CARGO_TARGET_DIR=$target
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# Each step compiles once; what cargo would keep to compile a changed file faster costs time and disk here.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# Asks rustup for something, quietly and not for ever. There may be no rustup.
rustup_has() {
    command -v rustup >/dev/null && timeout 300 rustup "$@" >/dev/null 2>&1
}

# Whether there is clippy; asks rustup for it.
has_clippy() {
    cargo clippy --version >/dev/null 2>&1 || rustup_has component add clippy
}

# Whether there is rustfmt; asks rustup for it.
has_rustfmt() {
    cargo fmt --version >/dev/null 2>&1 || rustup_has component add rustfmt
}

# Whether there is a C compiler: `cc`, or what $CC names.
has_cc() {
    command -v "${CC:-cc}" >/dev/null || install gcc libc6-dev || true
    command -v "${CC:-cc}" >/dev/null
}

# Whether there is libclang, where bindgen finds it.
has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib*/llvm*/lib*/libclang[-.]*' >/dev/null || ldconfig -p | grep -q 'libclang[-.]'
}

# Has what the scheduler's policy is built with for user space installed: a C compiler, and libclang, which reads its header.
has_policy() {
    has_libclang || install libclang-dev || true
    has_cc && has_libclang
}

# The same; says `skipped` and fails where that cannot be done.
need_policy() {
    if ! has_policy; then
        skip "$1" "there is no C compiler ${CC:-cc}, or no libclang" "apt-get install gcc libc6-dev libclang-dev${CC:+, or set CC to a compiler that there is}"
        return 1
    fi
}

# The packages with which nearq-scx is built.
scheduler_packages=(clang-19 libelf-dev zlib1g-dev pkg-config make)

# The first clang that is new enough to compile for the kernel, as nearq-scx's build script looks for it.
clang_for_bpf() {
    local clang
    for clang in ${CLANG:-clang-19 clang-18 clang-17 clang-16 clang}; do
        if command -v "$clang" >/dev/null && [ "$("$clang" -dumpversion | cut -d. -f1)" -ge 16 ]; then
            echo "$clang"
            return
        fi
    done
}

# Whether nearq-scx can be built here.
has_scheduler() {
    [ -n "$(clang_for_bpf)" ] && [ -e /usr/include/libelf.h ] && [ -e /usr/include/zlib.h ]
}

# Has what nearq-scx is built with installed; says `skipped` and fails where that cannot be done.
need_scheduler() {
    has_scheduler || install "${scheduler_packages[@]}" || true
    if ! has_scheduler; then
        skip "$1" "there is no clang of 16 or later, or no libelf or zlib to build with" "apt-get install ${scheduler_packages[*]}"
        return 1
    fi
}

# Whether a toolchain (`+nightly`, or nothing for the one that is set) has the standard library's source.
has_std_source() {
    # shellcheck disable=SC2086 # nothing, or a word
    [ -d "$(rustc $1 --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ]
}

# with_passes COUNT COMMAND...: runs one program of tests, of which exactly so many must pass: a filter that matches no test passes too.
with_passes() {
    local count=$1 log
    shift
    log=$(mktemp)
    if ! "$@" | tee "$log"; then
        rm -f "$log"
        return 1
    fi
    if ! grep -q "^test result: ok\. $count passed" "$log"; then
        rm -f "$log"
        echo "expected $count tests to pass, no more and no fewer: $*"
        return 1
    fi
    rm -f "$log"
}

# linux_tests CRATE: cargo's options that choose the tests of a crate that run on Linux alone: those programs in tests/ that use neither
# the simulated machine nor the model checker, whose coroutines neither Miri nor ThreadSanitizer can follow; and its unit tests where the
# same is true of them. Files called model.rs do not count there: such a module is left out by its `cfg` where miri or tsan is set.
linux_tests() {
    local tests
    if ! grep -rqE --exclude=model.rs 'nearq_(sim|model)' "crates/$1/src"; then
        echo --lib
    fi
    for tests in "crates/$1"/tests/*.rs "crates/$1"/tests/*/main.rs; do
        tests=${tests%/main.rs}
        if [ -e "$tests" ] && ! grep -rqE 'nearq_(sim|model)' "$tests"; then
            echo "--test $(basename "$tests" .rs)"
        fi
    done
}
