#!/bin/bash
# The checks of the Python package: python/tests/run.sh FOLDER [INTERPRETER...]
#
# Lints and types, then the tests with each CPython from 3.11 on: those that are named, or those on the path and of pyenv. FOLDER keeps what
# is built, and an environment with the packages of the tests for each interpreter.
set -euo pipefail
folder=$(realpath -m "${1:?python/tests/run.sh FOLDER [INTERPRETER...]: give a folder}")
shift
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=../../.ci/packages.sh
source ../.ci/packages.sh
export CARGO_TARGET_DIR=$folder/build
export PYO3_BUILD_EXTENSION_MODULE=1
export PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$folder"

# What an interpreter is: its version, with a `t` if it has no global lock.
version_of() {
    "$1" -c 'import sys, sysconfig; print("%d.%d" % sys.version_info[:2] + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED")))'
}

# The interpreter of a version: on the path, or pyenv's. A program on the path may only stand for others (a shim), and may not run.
find_interpreter() {
    local candidate
    for candidate in $(type -ap "python$1") "$HOME/.pyenv/versions/${1%t}".*"${1:4}"/bin/"python$1"; do
        if [ "$(version_of "$candidate" 2>/dev/null)" = "$1" ]; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

# environment NAME INTERPRETER PACKAGE...: an environment with these packages, made once; fails where it cannot be made.
environment() {
    local environment=$folder/$1 interpreter=$2 made
    shift 2
    made=$(readlink -f "$interpreter") # Another interpreter of that version makes another environment.
    [ "$(cat "$environment/made" 2>/dev/null)" != "$made $*" ] || return 0
    rm -rf "$environment"
    "$interpreter" -m venv "$environment" >/dev/null 2>&1 || return 1
    timeout 300 "$environment/bin/pip" install --quiet "$@" >"$folder/pip.log" 2>&1 || return 1
    echo "$made $*" >"$environment/made"
}

# extension INTERPRETER FOLDER: the package with its compiled part, as FOLDER/nearq.
extension() {
    local suffix=.abi3.so
    case $(version_of "$1") in
        *t) suffix=.so ;;
    esac
    PYO3_PYTHON=$1 cargo build --locked --quiet
    rm -rf "$2"
    mkdir -p "$2"
    cp -r python/nearq "$2/nearq"
    cp "$CARGO_TARGET_DIR/debug/lib_nearq.so" "$2/nearq/_nearq$suffix"
}

# tests ENVIRONMENT PACKAGE WHICH: pytest; prints what is skipped, and the totals as the frame of the checks reads them.
tests() {
    local log=$folder/pytest.log status=0
    PYTHONPATH=$2 timeout 900 "$1/bin/python" -m pytest -q -p no:cacheprovider -m "$3" >"$log" 2>&1 </dev/null || status=$?
    sed -nE 's/^SKIPPED \[[0-9]+\] ([^ ]+): (.*; to have it: .*)/skipped: \1: \2/p' "$log"
    awk '/ (passed|failed|error)/ { line = $0 } END {
        passed = failed = 0
        n = split(line, part, /[ ,]+/)
        for (i = 2; i <= n; i++) {
            if (part[i] == "passed") passed = part[i - 1]
            if (part[i] == "failed" || part[i] ~ /^error/) failed += part[i - 1]
        }
        printf "test result: %s. %d passed; %d failed\n", failed ? "FAILED" : "ok", passed, failed
    }' "$log"
    if [ "$status" != 0 ]; then
        cat "$log"
        return 1
    fi
}

if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --locked --quiet --all-targets -- -D warnings
else
    skip "lints of the Python module" "there is no clippy" "rustup component add clippy"
fi

interpreters=("$@")
if [ $# = 0 ]; then
    for version in 3.11 3.12 3.13 3.14 3.14t; do
        if found=$(find_interpreter "$version"); then
            interpreters+=("$found")
        else
            skip "the Python package with CPython $version" "there is no python$version" "install it, for example with pyenv"
        fi
    done
fi
if [ ${#interpreters[@]} = 0 ]; then
    skip "the Python package" "there is no CPython of 3.11 or later" "apt-get install python3 python3-venv"
    exit
fi

first=${interpreters[0]}
for interpreter in "${interpreters[@]}"; do
    version=$(version_of "$interpreter")
    case $version in
        *t) package=$folder/package-$version ;;
        *) package=$folder/package ;;
    esac
    # One serves all versions that have a global lock.
    if [ "$interpreter" = "$first" ] || [ "$package" != "$folder/package" ]; then
        extension "$interpreter" "$package"
    fi
    if [ "$interpreter" = "$first" ]; then
        if environment check "$interpreter" mypy ruff pytest; then
            "$folder/check/bin/ruff" check --no-cache --quiet .
            "$folder/check/bin/ruff" format --no-cache --quiet --check .
            MYPYPATH=python "$folder/check/bin/mypy" --no-error-summary --cache-dir "$folder/mypy"
            # What the compiled part has is what its stub says.
            PYTHONPATH=$package MYPYPATH=$package "$folder/check/bin/stubtest" nearq._nearq --concise --ignore-missing-stub \
                --mypy-config-file pyproject.toml >"$folder/stubtest.log" || {
                cat "$folder/stubtest.log"
                exit 1
            }
        else
            skip "lints and types of the Python package" "pip cannot install mypy and ruff" "a network, and python3-venv"
        fi
    fi
    if ! environment "env-$version" "$interpreter" pytest joblib 'dask[distributed]' && ! environment "env-$version" "$interpreter" pytest; then
        skip "the Python package with CPython $version" "pip cannot install pytest there" "a network, and python$version-venv"
        continue
    fi
    # Tests that start many processes take long: they run with the oldest and the newest version.
    which="not many_processes"
    [ "$interpreter" != "$first" ] && [ "$interpreter" != "${interpreters[-1]}" ] || which=""
    echo "CPython $version ($interpreter)"
    tests "$folder/env-$version" "$package" "$which"
done
