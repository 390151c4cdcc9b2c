#!/bin/bash
# Jobs through a server of NATS JetStream by one command, submitted, run and counted: .ci/jobs-run.sh NEARQ
#
# A quick check that a command which was built or installed in some way can do it; the tests of nearq-cli have the rest.
set -euo pipefail

nearq=$1
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
# A port of the server's choice, which it writes to a file.
nats-server --addr 127.0.0.1 --port -1 --jetstream --store_dir "$work/store" --ports_file_dir "$work" --log "$work/log" &
server=$!
for _ in $(seq 100); do
    port=$(grep -hoE 'nats://127.0.0.1:[0-9]+' "$work"/*.ports 2>/dev/null | head -n 1 || true)
    [ -z "$port" ] || break
    sleep 0.1
done
seq 50 | "$nearq" submit --to "$port" --stream JOBS --create
"$nearq" run --from "$port" --stream JOBS --consumer w --until-empty echo | sort -n | diff - <(seq 50)
"$nearq" jobs --of "$port" --stream JOBS | grep -q '^stream JOBS: 0 jobs left'
