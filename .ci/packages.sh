# What checks need of Debian's packages: `source` this.

# skip WHAT WHY HOW: the line that says what is not checked on this machine.
skip() {
    echo "skipped: $1: $2; to have it: $3"
}

# Installs packages, where that is possible; fails where it is not.
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    { timeout 120 apt-get update && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y --no-install-recommends "$@"; } >/dev/null 2>&1
}

# has PROGRAM PACKAGE WHAT: whether there is a program, which is installed if need be. Where it is not, WHAT is said to be skipped.
has() {
    command -v "$1" >/dev/null || install "$2" || true
    command -v "$1" >/dev/null && return
    skip "$3" "there is no $1" "apt-get install $2"
    return 1
}
