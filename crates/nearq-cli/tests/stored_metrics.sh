#!/bin/bash
# The recipe of docs/metrics.md, as it stands there, with Debian's node exporter and Prometheus: crates/nearq-cli/tests/stored_metrics.sh FOLDER
#
# FOLDER has the built `nearq` and `examples/probed`, of which two run. What is not there is installed where that is possible (root,
# apt-get); otherwise a line says what was skipped. Ends with 1 if anything was wrong.
set -u
built=$(readlink -f "${1:?the folder with nearq}")
page=$(readlink -f "$(dirname "$0")/../../../docs/metrics.md")
here=$(mktemp -d)
started=()
trap 'kill "${started[@]}" 2>/dev/null; wait; rm -rf "$here"' EXIT
export XDG_RUNTIME_DIR=$here PATH=$built:$PATH
mkdir "$here/exported"

# shellcheck source=.ci/packages.sh
source "$(dirname "$page")/../.ci/packages.sh"
for program in prometheus promtool prometheus-node-exporter; do
    has "$program" "${program/promtool/prometheus}" "metrics in Prometheus" || exit 0
done

wrong() {
    echo "wrong: $1"
    tail -n 20 "$here"/*.log 2>/dev/null
    exit 1
}

# until_so SECONDS COMMAND...: asks again and again.
until_so() {
    local left=$(($1 * 10))
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}

# ---- two programs -----------------------------------------------------------------------------------------------------------

for number in 1 2; do
    mkfifo "$here/commands$number"
    "$built/examples/probed" <"$here/commands$number" >/dev/null &
    started+=($!)
done
# They run until nothing more can come.
exec 3>"$here/commands1" 4>"$here/commands2"
pids=("${started[@]}")
answer() {
    nearq metrics "${pids[0]}" >/dev/null 2>&1 && nearq metrics "${pids[1]}" >/dev/null 2>&1
}
until_so 30 answer || wrong "the programs do not answer"

# ---- the recipe -------------------------------------------------------------------------------------------------------------

recipe=$(sed -n '/^folder=/,/^```/p' "$page" | sed -e '/^```/d' -e "s|^folder=.*|folder=$here/exported|")
[ -n "$recipe" ] || wrong "docs/metrics.md has no recipe"
eval "$recipe"
[ "$(ls "$here/exported")" = nearq.prom ] || wrong "the folder has $(ls "$here/exported")"
for file in "$here"/exported/*.prom; do
    promtool check metrics <"$file" >"$here/promtool.log" 2>&1 || wrong "promtool check metrics"
done
nearq metrics "${pids[0]}" --time 1 | promtool check metrics >"$here/promtool.log" 2>&1 || wrong "promtool check metrics, with times"
nearq metrics "${pids[@]}" --time 1 | promtool check metrics >"$here/promtool.log" 2>&1 || wrong "promtool check metrics, of two, with times"
# The parser of Prometheus's own client, which refuses a metric that is described twice.
if python3 -c 'import prometheus_client' 2>/dev/null || { install python3-prometheus-client && python3 -c 'import prometheus_client' 2>/dev/null; }; then
    nearq metrics --all --time 1 --format openmetrics >"$here/all.txt" || wrong "nearq metrics --all"
    python3 - "$here/all.txt" >"$here/processes.txt" 2>"$here/parser.log" <<'PYTHON' || wrong "the client's parser refuses the metrics of two processes"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
families = list(read(open(sys.argv[1]).read()))
names = [family.name for family in families]
assert len(names) == len(set(names)), names
print(*sorted({sample.labels["pid"] for family in families for sample in family.samples}))
PYTHON
    [ "$(cat "$here/processes.txt")" = "$(printf '%s\n' "${pids[@]}" | sort | paste -sd ' ')" ] || wrong "the processes are $(cat "$here/processes.txt")"
else
    skip "the metrics of several processes, read by Prometheus's client" "python3 does not have it" "apt-get install python3-prometheus-client"
fi

# ---- node exporter and Prometheus -------------------------------------------------------------------------------------------

exporter=127.0.0.1:$((20000 + RANDOM % 5000))
store=127.0.0.1:$((25000 + RANDOM % 5000))
prometheus-node-exporter --collector.disable-defaults --collector.textfile --collector.textfile.directory="$here/exported" \
    --web.listen-address=$exporter >"$here/exporter.log" 2>&1 &
started+=($!)
cat >"$here/prometheus.yml" <<YML
global: { scrape_interval: 1s }
scrape_configs: [{ job_name: node, static_configs: [{ targets: ["$exporter"] }] }]
YML
prometheus --config.file="$here/prometheus.yml" --storage.tsdb.path="$here/store" --web.listen-address=$store >"$here/store.log" 2>&1 &
started+=($!)

# ask QUERY: what Prometheus answers.
ask() {
    promtool query instant "http://$store" "$1" 2>"$here/query.log"
}
are_stored() {
    [ "$(ask 'count(nearq_workers{command="probed"})' | grep -o '=> [0-9]*')" = "=> 2" ]
}
until_so 60 are_stored || wrong "of two programs Prometheus has: $(ask nearq_workers)"
for pid in "${pids[@]}"; do
    ask "nearq_queue_items_started_total{pid=\"$pid\",queue=\"crypt\"}" | grep -q crypt || wrong "the queue of $pid is missing"
    ask "nearq_queue_info{pid=\"$pid\"}" | grep -q 'kind="ordered"' || wrong "what the queues of $pid are is missing"
done
[ "$(ask node_textfile_scrape_error | grep -o '=> [0-9]*')" = "=> 0" ] || wrong "node exporter has an error"
grep -q 'err=' "$here/exporter.log" && wrong "node exporter complains"
echo "ok: metrics of two programs in Prometheus, by node exporter"
