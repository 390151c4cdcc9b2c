#!/bin/bash
# Checks that an installed command works, all subcommands of it: packaging/works.sh [--process PID] [--experiments] COMMAND...
#
# COMMAND... runs `nearq` where it is installed, such as `chroot FOLDER nearq`, and sets TERM to a terminal. With --process the subcommands
# that look into a process are tried on that one, which must have a queue with items and allow changes. With --experiments, `nearq bench`
# must run; without it, it must say how to get it. Needs bash, grep and, for a terminal, script (Debian: bsdutils).
set -euo pipefail

process=
experiments=
while [[ ${1:-} == --* ]]; do
    case $1 in
        --process) process=$2 && shift ;;
        --experiments) experiments=1 ;;
    esac
    shift
done
nearq=("$@")

fail() {
    printf 'packaging/works.sh: %s\n' "$*" >&2
    exit 1
}

# prints PATTERN ARGUMENT...: the command ends well, and prints something that matches.
prints() {
    local pattern=$1 printed
    shift
    printed=$("${nearq[@]}" "$@" 2>&1 </dev/null) || fail "nearq $* fails: $printed"
    # A variable in place of a pipe: what stops reading early would end the command by a signal.
    grep -qE -- "$pattern" <<<"$printed" || fail "nearq $* prints nothing like '$pattern': $printed"
}

# refuses PATTERN ARGUMENT...: the command ends with 2, and says so in a line that matches.
refuses() {
    local pattern=$1 printed status=0
    shift
    printed=$("${nearq[@]}" "$@" 2>&1 </dev/null) || status=$?
    [ "$status" = 2 ] || fail "nearq $* ends with $status: $printed"
    grep -qE -- "$pattern" <<<"$printed" || fail "nearq $* says nothing like '$pattern': $printed"
}

prints '^nearq [0-9]+\.[0-9]+\.[0-9]+$' --version
prints 'Usage: nearq' --help
prints '^Pods of every scope' topo
prints '"cpus"' topo --json
prints '^NODE' homes
prints 'affinity_scope' knobs
prints '"pid"|^\[\]$' ps --json
prints 'complete -F _nearq nearq' completions bash
prints '^#compdef nearq' completions zsh
prints 'complete -c nearq|complete .*nearq' completions fish
prints 'edit:completion' completions elvish
prints '^affinity_scope' __complete -- knobs affinity_s
prints "^set	" __complete -- se
refuses 'affinity_scope' knobs nosuch

if [ -n "$experiments" ]; then
    prints 'scopes' bench --help
else
    refuses 'cargo build --release --package nearq-bench' bench scopes
fi

if [ -n "$process" ]; then
    prints "^ *$process " ps
    prints 'Worker Pools' dump "$process"
    queue=$("${nearq[@]}" get "$process" | sed -n 's/^queue .* (\(#[0-9]*\))$/\1/p' | head -n 1)
    [ -n "$queue" ] || fail "process $process has no queue"
    prints '^ *affinity_scope ' get "$process" "$queue"
    prints '^affinity_scope  cache$' set "$process" "$queue" affinity_scope=cache
    prints 'start' trace "$process" --items 3
    prints '^nearq_' metrics "$process"
    prints 'WORKQUEUE' top "$process" --once -i 0.2
    prints 'affinity_scope' tune "$process" "$queue" --rounds 2 --seconds 0.05 --settle 0
    # The first screen, on a terminal.
    screen=$({ sleep 2 && printf q; } | TERM=xterm script -qec "${nearq[*]} top $process" /dev/null) || fail "nearq top fails: $screen"
    [[ $screen == *"nearq top"*"pid $process"* && $screen == *"? help"* ]] || fail "nearq top shows: $screen"
fi
