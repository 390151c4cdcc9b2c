# Runs steps one after the other until one fails. Sourced by .ci/run and .ci/long, which define the steps.
#
# run_steps FOLDER MINUTES STEP...: runs FOLDER/STEP for each STEP, each for at most MINUTES, so that one that hangs fails too. If a step does
# not exist, it lists those that do, runs none and exits with 2. At the end it prints what was skipped, a table with the wall and CPU time of
# each step, and how many tests passed and failed; a step that fails although no test failed counts as one failed test. The exit status is
# 0 only if nothing failed.

# Sums the figure before the word $1 over all "test result" lines.
count() {
    awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" word) sum += $(i - 1) } END { print sum + 0 }' "$log"
}

finish() {
    local status=$? passed failed
    passed=$(count passed)
    failed=$(count failed)
    echo
    # Each once; the test harness may have begun the line with a test's name.
    sed -nE 's/^(test .* \.\.\. )?(skipped: .*)/\2/p' "$log" | awk '!said[$0]++'
    printf '%-24s %8s %8s\n' step "wall s" "CPU s"
    cat "$table"
    awk '{ wall += $(NF - 1); cpu += $NF } END { printf "%-24s %8.0f %8.0f\n", "all", wall, cpu }' "$table"
    if [ "$status" != 0 ]; then
        [ "$failed" != 0 ] || failed=1
        echo "step $current failed; later steps were not run"
    fi
    rm -f "$log" "$log.step" "$table" "$times"
    echo "$passed passed, $failed failed"
    exit "$status"
}

run_steps() {
    local folder=$1 limit=$2 status began step shown
    shift 2
    for step in "$@"; do
        if [ ! -x "$folder/$step" ] || [ ! -f "$folder/$step" ]; then
            echo "there is no step $step; steps: $(ls -x -w 0 "$folder" | tr -s ' ')" >&2
            exit 2
        fi
    done
    log=$(mktemp)
    table=$(mktemp)
    times=$(mktemp)
    current=preparation
    trap finish EXIT
    TIMEFORMAT='%R %U %S' # of the shell's `time`: real, user and system seconds
    for current in "$@"; do
        echo
        echo "== $current ($SECONDS s)"
        status=0
        began=$SECONDS
        # In the background, and into a file that is shown meanwhile: what a step leaves running keeps nobody waiting, and ^C is heeded.
        : >"$log.step"
        timeout --kill-after=10s "${limit}m" "$folder/$current" >>"$log.step" 2>&1 </dev/null &
        step=$!
        trap 'kill "$step" 2>/dev/null; exit 130' INT TERM
        tail -n +1 -s 0.2 -f --pid="$step" "$log.step" &
        shown=$!
        { time wait "$step"; } 2>"$times" || status=$?
        wait "$shown" || true
        trap - INT TERM
        cat "$log.step" >>"$log"
        if [ "$status" != 0 ] && [ $((SECONDS - began)) -ge $((limit * 60)) ]; then
            echo "it was ended after $limit minutes: something hangs, or the host is far too busy"
        fi
        awk -v step="$current" 'END { printf "%-24s %8.0f %8.0f\n", step, $1, $2 + $3 }' "$times" >>"$table"
        [ "$status" = 0 ] || exit "$status"
    done
}
