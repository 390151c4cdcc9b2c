#!/bin/bash
# Prints commands as a page has them, so that a check runs what readers are told to type: .ci/commands-of.sh PAGE NAME
#
# They are the block of code that follows the line `<!-- NAME -->` of the page. Fails if there is none.
set -euo pipefail

awk -v mark="<!-- $2 -->" '
    $0 == mark { marked = 1; next }
    marked && !inside && /^```/ { inside = 1; next }
    inside && /^```/ { exit }
    inside { print; lines++ }
    END { exit !lines }
' "$1" || {
    echo "$1 has no block of commands below <!-- $2 -->" >&2
    exit 1
}
