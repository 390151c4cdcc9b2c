# What the scripts beside this one share. They run in a virtual machine.
scx=/job/nearq-scx
state=/sys/kernel/sched_ext/state

fail() {
    echo "failed: $*"
    exit 1
}

# Waits until a command succeeds, for a minute at most.
await() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || return 1
        sleep 0.2
    done
}
