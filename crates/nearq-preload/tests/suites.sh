#!/bin/bash
# Test suites of mutexes, condition variables, reader-writer locks and cancellation, written by others, under the preload:
#   crates/nearq-preload/tests/suites.sh LIBRARY FOLDER [quick]
#
# posix: the open POSIX test suite, from the Linux Test Project's package where Debian has it, else from posixtestsuite, the suite that
# the project took over: the tests of mutexes, condition variables, reader-writer locks, cancellation and clean-up handlers.
# glibc: the C library's own tests of threads (nptl, sysdeps/pthread), as far as they build outside of its tree.
#
# Both are Debian's source packages, fetched with apt's own sources into FOLDER, unpacked and built there, and used again. Each test
# runs without the preload, and with it in each mode of waiting. With `quick` only the tests listed in suites/quick are built and run,
# and each of them must be there and build.
#
# A test that fails with the preload runs again on both sides, 10 times, then 30 and 100 times in all while the result is not certain.
# suites/verdict.sh says whether it is worse with the preload, and how that is decided. If it is, the outcome is 1, unless suites/exceptions
# has the test and docs/locks.md the reason. Both ratios are printed in any case. A test that fails three times without the preload, before
# all others, says nothing and is left out. Each test's last output is in FOLDER/output.
#
# Tests that set the machine's clock are left out: everything that runs beside them would see it.
set -uo pipefail
library=$(readlink -f "${1:?the library}")
folder=$(realpath -m "${2:?the folder}")
size=${3:-all}
beside=$(dirname "$(readlink -f "$0")")/suites
modes=(without auto numa off)
compiler=${CC:-cc}
# No test of either suite takes half as long by itself.
limit=100
jobs=$(($(nproc) * 2))
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/scratch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
ulimit -c 0
unset LD_PRELOAD

skip() {
    echo "skipped: test suites under the preload: $1; to have it: $2"
    exit 0
}

# ---- fetching -------------------------------------------------------------------------------------------------------------

# apt's own sources, for source packages, with lists of their own: nothing of the system's is changed.
prepare_apt() {
    local from
    mkdir -p "$folder/apt/sources" "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    for from in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ ! -e "$from" ] || sed -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$from" >"$folder/apt/sources/$(basename "$from")"
    done
    apt=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/apt/sources"
        -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache")
    timeout 300 apt-get "${apt[@]}" update >"$folder/apt/log" 2>&1
}

# fetch SUITE PATTERNS PACKAGE...: gets what matches of a package's source into FOLDER/SUITE/tree, from the first package that exists.
fetch() {
    local suite=$1 patterns package archive
    read -ra patterns <<<"$2"
    shift 2
    [ ! -e "$folder/$suite/fetched" ] || return 0
    [ -e "$folder/apt/log" ] || prepare_apt
    for package in "$@"; do
        rm -rf "${folder:?}/$suite"
        mkdir -p "$folder/$suite/tree"
        (cd "$folder/$suite" && timeout 600 apt-get "${apt[@]}" source --download-only --only-source "$package") \
            >>"$folder/apt/log" 2>&1 || continue
        for archive in "$folder/$suite"/*.orig.tar.*; do
            # A pattern may match nothing.
            [[ $archive == *.asc ]] \
                || tar -xf "$archive" -C "$folder/$suite/tree" --strip-components=1 --wildcards "${patterns[@]}" 2>>"$folder/apt/log"
        done
        [ -n "$(ls "$folder/$suite/tree")" ] || return 1
        basename "$folder/$suite"/*.dsc .dsc | tr _ ' ' >"$folder/$suite/fetched"
        rm -f "$folder/$suite"/*.tar.*
        return 0
    done
    return 1
}

# ---- building -------------------------------------------------------------------------------------------------------------

# What glibc's tests include and only its own build has, as far as a few lines can replace it.
prepare_glibc() {
    local tree=$folder/glibc/tree headers=$folder/glibc/headers name
    mkdir -p "$headers/elf" "$folder/glibc/support"
    for name in support posix sysdeps malloc test-skeleton.c sysdeps/generic/tst-stack-align.h; do
        ln -sfn "$tree/$name" "$headers/${name##*/}"
    done
    for name in array_length libc-diag libc-pointer-arith intprops verify; do
        [ ! -e "$tree/include/$name.h" ] || ln -sfn "$tree/include/$name.h" "$headers/$name.h"
    done
    : >"$headers/config.h"
    echo '#define HAVE_TUNABLES 0' >"$headers/elf/dl-tunables.h"
    printf '%s\n' '#define TEST_COMPAT(library, from, to) 0' >"$headers/shlib-compat.h"
    printf '%s\n' '#include <elf.h>' '#define _STACK_GROWS_DOWN 1' '#define DEFAULT_STACK_PERMS (PF_R | PF_W)' >"$headers/stackinfo.h"
    cat >"$headers/stand-in.h" <<'HEADER'
#include <limits.h>
#define TIMEOUTFACTOR 2
#define attribute_hidden
#define libc_hidden_proto(name)
#define libc_hidden_def(name)
#define weak_alias(name, other)
#define strong_alias(name, other)
#define SRCDIR_PATH "/"
#define OBJDIR_PATH "/"
#define OBJDIR_ELF_LDSO_PATH "/"
#define INSTDIR_PATH "/usr"
#define LIBDIR_PATH "/usr/lib"
#define BINDIR_PATH "/usr/bin"
#define SBINDIR_PATH "/usr/sbin"
#define SLIBDIR_PATH "/lib"
#define ROOTSBINDIR_PATH "/sbin"
#define COMPLOCALEDIR_PATH "/usr/lib/locale"
HEADER
    [ ! -e "$folder/glibc/libsupport.a" ] || return 0
    # Those that do not compile outside are needed by few tests, which then do not link.
    for name in "$tree"/support/*.c; do
        case ${name##*/} in
        tst-* | *-time64.c | test-driver.c | *-container.c | test-run-command.c | links-dso-* | echo-* | README* | *_main_*) ;;
        *) echo "$name" ;;
        esac
    done | xargs -P "$jobs" -I '{}' bash -c 'for_glibc -c -o "$folder/glibc/support/$(basename "$1" .c).o" "$1" 2>/dev/null' - '{}'
    ar rcs "$folder/glibc/libsupport.a" "$folder"/glibc/support/*.o
}

# The compiler as glibc's tests want it.
for_glibc() {
    local tree=$folder/glibc/tree
    "$compiler" -D_GNU_SOURCE -std=gnu11 -O2 -fgnu89-inline -w -include "$folder/glibc/headers/stand-in.h" -I "$folder/glibc/headers" \
        -I "$tree/support" -iquote "$tree/nptl" -iquote "$tree/sysdeps/pthread" -iquote "$tree/sysdeps/unix/sysv/linux" "$@"
}

# source_of SUITE/NAME
source_of() {
    local tree=$folder/${1%%/*}/tree
    case $1 in
    posix/*) ls "$tree"/{,testcases/open_posix_testsuite/}conformance/interfaces/"${1#posix/}.c" 2>/dev/null ;;
    glibc/*) ls "$tree"/{nptl,sysdeps/pthread}/"${1#glibc/}.c" 2>/dev/null ;;
    esac
}

# All tests: SUITE/NAME. glibc's modules are not tests, nor is tst-cancelx1, which its own Makefiles leave out. Statically linked programs
# ignore the preload, and times have one width here.
all_tests() {
    local test
    names | while read -r test; do
        grep -qE 'clock_settime|settimeofday' "$(source_of "$test")" || echo "$test"
    done
}

names() {
    (cd "$folder/posix/tree" && find . -path '*conformance/interfaces/pthread_*' -name '[0-9]*-*.c' ! -name '*-buildonly.c') \
        | sed -nE 's,^.*/interfaces/(pthread_(mutex|cond|rwlock|.*cancel|cleanup).*)\.c$,posix/\1,p' | sort
    (cd "$folder/glibc/tree" && ls nptl/tst-*.c sysdeps/pthread/tst-*.c) \
        | sed -nE '/-(static|time64|common|skeleton.*)\.c$|mod[^/]*\.c$|aux\.c$|cancel-self-cleanup|cancelx1\.c$/d
            s,^.*/(tst-.*)\.c$,glibc/\1,p' | sort -u
}

# build SUITE/NAME
build() {
    local to=$folder/built/$1 from more=()
    [ ! -e "$to" ] || return 0
    from=$(source_of "$1")
    mkdir -p "$(dirname "$to")"
    case $1 in
    posix/*)
        "$compiler" -D_GNU_SOURCE -std=gnu99 -O2 -w -I "${from%/conformance/*}/include" "$from" -o "$to.new" -pthread -lrt
        ;;
    glibc/*)
        # As glibc's own Makefiles have it.
        case $1 in
        *cancelx* | *cleanupx* | *oncex*) more=(-fexceptions -fasynchronous-unwind-tables) ;;
        *oncey*) more=(-fno-exceptions -fno-asynchronous-unwind-tables) ;;
        *initializers1-*) more=("-std=${1##*-}") ;;
        esac
        for_glibc "${more[@]}" "$from" "$folder/glibc/libsupport.a" -o "$to.new" -pthread
        ;;
    esac >"$to.log" 2>&1 && mv "$to.new" "$to"
    true
}

# ---- running --------------------------------------------------------------------------------------------------------------

# attempt SUITE/NAME MODE: how it ended.
attempt() {
    local program=$folder/built/$1 here with=() arguments=() session status said=$folder/output/$2/$1
    here=$(mktemp -d "$scratch/XXXXXX")
    mkdir -p "$(dirname "$said")"
    [ "$2" = without ] || with=(LD_PRELOAD="$library" NEARQ_LOCK="$2")
    case $1 in
    */tst-cancel7 | */tst-cancelx7) arguments=(--command "exec $program") ;;
    */tst-exec4) arguments=("$program") ;;
    */tst-umask1) arguments=("$here/file") ;;
    esac
    cd "$here" || return
    : >Makefile # what tests open that run beside one
    # In a session of its own, all of which is killed: a test that is killed leaves its children.
    setsid timeout --kill-after=5 "$limit" env TMPDIR="$here" "${with[@]}" "$program" "${arguments[@]}" >"$said" 2>&1 </dev/null &
    session=$!
    wait "$session"
    status=$?
    pkill -KILL --session "$session"
    cd / && rm -rf "$here"
    case ${1%%/*}:$status in
    *:0) echo passed ;;
    *:124 | *:137) echo "was ended after $limit s" ;;
    posix:2) echo unresolved ;;
    posix:4 | glibc:77) echo unsupported ;;
    posix:5) echo untested ;;
    *) if [ "$status" -gt 128 ]; then echo "signal $((status - 128))"; else echo "status $status"; fi ;;
    esac
}

# first SUITE/NAME MODE: the run whose outcome is in the table.
first() {
    mkdir -p "$(dirname "$scratch/outcomes/$2/$1")"
    attempt "$1" "$2" 2>/dev/null >"$scratch/outcomes/$2/$1"
}

outcome() {
    cat "$scratch/outcomes/$2/$1"
}

# fails SUITE/NAME MODE: says so if it fails.
fails() {
    [ "$(attempt "$1" "$2" 2>/dev/null)" = passed ] || echo "$2"
}

# again SUITE/NAME MODE: runs a test again that failed with the preload, on both sides beside each other; prints the verdict, and fails if
# it counts.
again() {
    local runs=0 more with=0 without=0 verdict=again failed why said=$folder/output/$2/$1
    cp "$said" "$scratch/first"
    for more in 10 20 70; do
        [ "$verdict" = again ] || break
        failed=$(for _ in $(seq "$more"); do printf '%s\n' "$2" without; done \
            | xargs -P "$jobs" -I '{}' bash -c 'fails "$1" "$2"' - "$1" '{}')
        with=$((with + $(grep -cx "$2" <<<"$failed")))
        without=$((without + $(grep -cx without <<<"$failed")))
        runs=$((runs + more))
        verdict=$("$beside/verdict.sh" "$with" "$without" "$runs")
    done
    why="$1, $2: $(outcome "$1" "$2"); then fails $with of $runs times with the preload, $without of $runs without"
    case $verdict in
    flaky) echo "flaky on both sides: $why" ;;
    once) echo "failed once: $why" ;;
    *)
        if is_exception "$1" "$2"; then
            echo "exception: $why: $(reason "$1")"
        else
            echo "wrong: $why"
            tail -n 5 "$scratch/first" | sed 's/^/    /'
            return 1
        fi
        ;;
    esac
}

# says_nothing SUITE/NAME: it fails without the preload, three times out of three.
says_nothing() {
    [ "$(outcome "$1" without)" != passed ] && [ -n "$(fails "$1" without)" ] && [ -n "$(fails "$1" without)" ]
}

# The file suites/exceptions: SUITE/NAME MODE[,MODE...] REASON.
reason() {
    sed -n "s,^$1 [^ ]* ,,p" "$beside/exceptions"
}

is_exception() {
    sed -n "s,^$1 \([^ ]*\) .*,\1,p" "$beside/exceptions" | tr , '\n' | grep -qx "$2"
}

export folder library scratch compiler limit
export -f for_glibc source_of build attempt first fails

# ---- all of it ------------------------------------------------------------------------------------------------------------

command -v apt-get >/dev/null || skip "there is no apt-get to fetch their sources" "run it on Debian"
command -v "$compiler" >/dev/null || skip "there is no C compiler $compiler" "apt-get install gcc libc6-dev"
command -v xz >/dev/null || skip "there is no xz" "apt-get install xz-utils"
fetch posix '*/conformance/interfaces/pthread_* */include/*' ltp posixtestsuite \
    && fetch glibc "*/nptl/* */support/* */sysdeps/pthread/* */sysdeps/unix/sysv/linux/tst-* */tst-*.h \
        */posix/tst-* */elf/tst-* */malloc/dynarray* */include/*.h */test-skeleton.c" glibc \
    || skip "their sources cannot be fetched (see $folder/apt/log)" "name a mirror with Debian's source packages in apt's sources"

while read -r test _; do
    [ "${test:0:1}" = "#" ] || grep -qF "$test" "$beside/../../../../docs/locks.md" \
        || { echo "wrong: docs/locks.md does not name the exception $test"; exit 1; }
done <"$beside/exceptions"
prepare_glibc
all_tests >"$scratch/all"
if [ "$size" = quick ]; then
    gone=$(grep -vxFf "$scratch/all" "$beside/quick" | tr '\n' ' ')
    [ -z "$gone" ] || { echo "wrong: suites/quick lists tests that are not in the suites: $gone"; exit 1; }
    cp "$beside/quick" "$scratch/tests"
else
    cp "$scratch/all" "$scratch/tests"
fi
xargs -P "$jobs" -I '{}' bash -c 'build "$1"' - '{}' <"$scratch/tests"
while read -r test; do
    if [ -e "$folder/built/$test" ]; then echo "$test" >>"$scratch/built"; else echo "$test" >>"$scratch/not-built"; fi
done <"$scratch/tests"
if [ "$size" = quick ] && [ -e "$scratch/not-built" ]; then
    echo "wrong: tests that suites/quick lists do not build: $(tr '\n' ' ' <"$scratch/not-built")"
    exit 1
fi
[ -s "$scratch/built" ] || { echo "wrong: not one test could be built"; exit 1; }

# Whether the preload is active at all: it says so at the end of a program in which threads had to wait.
build posix/pthread_cond_broadcast/1-1
said=$(LD_PRELOAD=$library NEARQ_PRELOAD_STATISTICS=1 timeout "$limit" "$folder/built/posix/pthread_cond_broadcast/1-1" 2>&1)
grep -q '^nearq: ' <<<"$said" || { echo "wrong: the preload does not work: $said"; exit 1; }

for mode in "${modes[@]}"; do
    began=$SECONDS
    xargs -P "$jobs" -I '{}' bash -c 'first "$1" "$2"' - '{}' "$mode" <"$scratch/built"
    echo "$mode: $((SECONDS - began)) s"
done

printf '\n%-34s %8s %8s' suite tests built
printf ' %8s' "${modes[@]}"
echo
for suite in posix glibc; do
    printf '%-34s' "$(cat "$folder/$suite/fetched")"
    printf ' %8s' "$(grep -c "^$suite/" "$scratch/tests")" "$(grep -c "^$suite/" "$scratch/built")"
    for mode in "${modes[@]}"; do
        printf ' %8s' "$(grep "^$suite/" "$scratch/built" | while read -r test; do outcome "$test" "$mode"; done | grep -c '^passed$')"
    done
    echo
done
echo
[ ! -e "$scratch/not-built" ] || echo "do not build outside of their tree: $(tr '\n' ' ' <"$scratch/not-built")"

wrong=0
while read -r test; do
    if says_nothing "$test"; then
        echo "does not pass without the preload: $test: $(outcome "$test" without)"
        continue
    fi
    for mode in "${modes[@]:1}"; do
        if [ "$(outcome "$test" "$mode")" != passed ]; then
            again "$test" "$mode" || wrong=1
        elif is_exception "$test" "$mode"; then
            echo "passes, although it is an exception: $test, $mode"
        fi
    done
done <"$scratch/built"
exit $wrong
