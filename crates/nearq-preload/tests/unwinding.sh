#!/bin/bash
# Whether the library can be unwound wherever a thread may be cancelled: crates/nearq-preload/tests/unwinding.sh LIBRARY
#
# A thread of the asynchronous cancellation type may end at any instruction. While it is of that type, no frame of a function with an LSDA,
# the table of functions that catch or clean up, may be on its stack (src/cancel.rs). Only the compiler decides which functions have one. So
# this script reads it from the release library:
#
# - The calls are followed from each exported function, and from those that the C library calls at forks and ends. A function that calls
#   pthread_setcanceltype changes the type, and what it calls is not followed. No function that is reached may have an LSDA. Calls of
#   functions that panic are not followed: a panic ends the process.
# - Nor may the functions through which cancel::sleep is called, where the thread is of the asynchronous type again: up to the function that
#   has changed the type before.
#
# Calls through pointers are not seen, and the order of the calls in a function that changes the type is not checked. Ends with 1 if a
# function is wrong, and says how it is reached.
set -euo pipefail
library=$(readlink -f "${1:?the library}")
for tool in readelf objdump; do
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: whether the preload can be unwound: there is no $tool; to have it: apt-get install binutils"
        exit 0
    fi
done

{
    readelf -W --debug-dump=frames "$library" 2>/dev/null | grep -E ' (CIE|FDE )|Augmentation:'
    echo "-- relocations"
    readelf -Wr "$library"
    echo "-- exported"
    readelf -W --dyn-syms "$library"
    echo "-- code"
    LC_ALL=C objdump -d --no-show-raw-insn "$library"
} | awk '
    # Addresses are compared as text of one length.
    function address(text) {
        sub(/^(0x)?0*/, "", text)
        return substr("0000000000000000", 1, 16 - length(text)) text
    }

    function name(function_) {
        text = function_ in names ? names[function_] : "the function at " function_
        sub(/17h[0-9a-f]+E(\.llvm\.[0-9]+)?$/, "E", text)
        return text
    }

    # Calls, jumps and addresses that lead to the beginning of another function.
    function refers(to) {
        if (to in relocated)
            to = relocated[to]
        if ((to in augmented) && to != current)
            calls[current] = calls[current] " " to
    }

    function wrong(function_, why) {
        text = name(function_)
        for (from = function_; from in reached_from; from = reached_from[from])
            text = text ", called by " name(reached_from[from])
        print "wrong: " why " may be on the stack where a thread is cancelled, and has an LSDA: " text
        failed = 1
    }

    /^-- / { section = $2; next }
    section == "" && $4 == "CIE" { cie = $1; next }
    section == "" && $1 == "Augmentation:" { augmentation[cie] = $2; next }
    section == "" && $4 == "FDE" {
        split(substr($5, 5) " " substr($6, 4), fields, /[ .]+/)
        augmented[address(fields[2])] = augmentation[fields[1]]
        next
    }
    section == "relocations" && $3 ~ /_RELATIVE$/ { relocated[address($1)] = address($4); next }
    section == "exported" && $4 == "FUNC" && $5 == "GLOBAL" && $7 != "UND" { roots[address($2)] = 1; next }
    section == "code" && /^[0-9a-f]+ <.*>:$/ {
        start = address($1)
        if (start in augmented) {
            current = start
            names[current] = substr($2, 2, length($2) - 3)
            if (names[current] ~ /nearq_preload.*(before_fork|after_fork|report.*at_exit)|nearq_platform.*ending.*5ended/) {
                roots[current] = 1
                rooted++
            }
            if (names[current] ~ /nearq_preload.*cancel.*5sleep/)
                sleep = current
        }
        next
    }
    section == "code" && current != "" && /</ {
        if (/<pthread_setcanceltype[@>]/)
            changes[current] = 1
        if (match($0, /# [0-9a-f]+ </))
            refers(address(substr($0, RSTART + 2, RLENGTH - 4)))
        else if (match($0, /[ \t,][0-9a-f]+ </))
            refers(address(substr($0, RSTART + 1, RLENGTH - 3)))
    }

    END {
        for (root in roots) {
            queue[++queued] = root
            seen[root] = 1
        }
        for (i = 1; i <= queued; i++) {
            at = queue[i]
            if (augmented[at] ~ /L/) {
                wrong(at, "a function")
                continue
            }
            if (at in changes)
                continue
            count = split(calls[at], called, " ")
            for (j = 1; j <= count; j++)
                if (!(called[j] in seen) && names[called[j]] !~ /panic/) {
                    seen[called[j]] = 1
                    reached_from[called[j]] = at
                    queue[++queued] = called[j]
                }
        }
        for (from in calls) {
            count = split(calls[from], called, " ")
            for (j = 1; j <= count; j++)
                callers[called[j]] = callers[called[j]] " " from
        }
        sleeping = 0
        if (sleep != "") {
            delete reached_from
            up[++sleeping] = sleep
            above[sleep] = 1
        }
        for (i = 1; i <= sleeping; i++) {
            at = up[i]
            if (augmented[at] ~ /L/)
                wrong(at, "a function that calls cancel::sleep")
            if (at in changes && at != sleep)
                continue
            count = split(callers[at], called, " ")
            for (j = 1; j <= count; j++)
                if (!(called[j] in above)) {
                    above[called[j]] = 1
                    up[++sleeping] = called[j]
                }
        }
        # If this does not find what is there, it would not find anything wrong either.
        if (queued < 50 || rooted != 4 || sleeping < 2) {
            print "wrong: the library is not as this expects: " queued " functions, " rooted + 0 " rooted, " sleeping " that sleep"
            failed = 1
        }
        if (!failed)
            print "ok: none of the " queued " functions where a thread may be cancelled has an LSDA, nor of the " sleeping " where it sleeps"
        exit failed
    }'
