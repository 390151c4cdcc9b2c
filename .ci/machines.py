#!/usr/bin/python3
"""Compares what nearq and hwloc's lstopo read machines as: machines.py FOLDER NEARQ DIFFERENCES

FOLDER holds archives of /sys trees, XML files, and C headers with the files of a device, however deep. Each machine's packages, nodes, last-level
caches, cores and CPUs are counted by both. A line of DIFFERENCES is `MACHINE FACT NEARQ LSTOPO REASON...`; `refused` stands for a machine that one
of them does not read. A difference without a line fails, and so does a line without its difference. Then each simulated experiment runs on each
machine that nearq reads, as small as it can be: it ends, or is refused.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from hwloc import known_differences, lstopo, machines

FACTS = ["packages", "nodes", "caches", "cores", "CPUs"]


def unpacked(archive, folder):
    """The folders of an archive that hold a machine."""
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, stderr=subprocess.DEVNULL)
    for place, folders, _ in os.walk(folder):
        if os.path.isdir(os.path.join(place, "sys/devices/system/cpu")):
            folders.clear()
            yield place


def written(header, folder):
    """The folder with the files of a device, which a C header has as `.path = "..."` and `.content = "..." "..."`. None where the CPUs are not told:
    lstopo asks the machine that it runs on then."""
    text = open(header, encoding="utf-8", errors="replace").read()
    for path, content in re.findall(r'\.path = "(/[^"]+)".*?\.content =\s*((?:"(?:[^"\\]|\\.)*"\s*)*)', text, re.DOTALL):
        if not path.startswith(("/sys/", "/proc/")) or ".." in path:
            continue
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', content)
        place = os.path.join(folder, path.lstrip("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write("".join(parts).encode("latin-1", "replace").decode("unicode_escape"))
    cpus = os.path.join(folder, "sys/devices/system/cpu")
    if os.path.exists(os.path.join(cpus, "online")) and glob.glob(os.path.join(cpus, "cpu*/topology")):
        yield folder


def last_level(caches, cpus):
    """How many caches are the highest of some CPU; `caches` are (level, CPUs)."""
    found = set()
    for cpu in cpus:
        own = [cache for cache in caches if cpu in cache[1]]
        if own:
            found.add(max(own, key=lambda cache: cache[0]))
    return len(found)


def by_nearq(nearq, name):
    run = subprocess.run([nearq, "topo", "--json", "--on", name], capture_output=True, text=True, timeout=60)
    if run.returncode == 2:
        return None, run.stderr.strip()
    if run.returncode != 0:
        raise SystemExit(f"nearq topo --on {name}: ended with {run.returncode}: {run.stderr}")
    machine = json.loads(run.stdout)
    online = set(machine["online"])
    there = lambda parts: sum(1 for part in parts if online & set(part["cpus"]))
    caches = {(each["level"], frozenset(each["cpus"])) for each in machine["caches"] if each["kind"] != "instruction"}
    caches = {(level, cpus & online) for level, cpus in caches}
    counts = [there(machine["packages"]), len(machine["nodes"]), last_level(caches, online), there(machine["cores"]), len(online)]
    return dict(zip(FACTS, counts)), ""


def by_lstopo(path, kind):
    root = lstopo(path, kind)
    if root is None:
        return None
    counts = {kind: 0 for kind in ["Package", "NUMANode", "Core", "PU"]}
    caches, cpus = set(), set()

    def visit(element, above):
        kind = element.get("type", "")
        counts[kind] = counts.get(kind, 0) + 1
        if kind.startswith("L") and kind.endswith("Cache") and element.get("cache_type") != "2":
            above = above + [(int(element.get("depth")), element)]
        if kind == "PU":
            cpus.add(element)
            if above:
                caches.add(max(above, key=lambda cache: cache[0])[1])
        for child in element.findall("object"):
            visit(child, above)

    for element in root.findall("object"):
        visit(element, [])
    # What a machine does not tell of is one package, and a core of each CPU.
    cores = counts["Core"] or len(cpus)
    return dict(zip(FACTS, [counts["Package"] or 1, counts["NUMANode"] or 1, len(caches), cores, len(cpus)]))


# Each experiment, as small as it can be.
EXPERIMENTS = [
    "bench scopes --runs 1 --duration 0.01 --issuers 1 --in-flight 1",
    "bench dispatch --runs 1 --duration 0.01 --idle-samples 1 --items 1",
    "bench blocking --runs 1 --items 20",
    "bench join --runs 1",
    "bench highpri --runs 1 --duration 0.01 --threads 10",
    "bench lock --runs 1 --duration 0.01 --writers 1,2",
    "bench home --runs 1 --tasks 1 --passes 1 --problem-size 1000",
    "bench numa --runs 1 --files 1 --jobs 1",
    "sim sensitivity --runs 1 --experiment dispatch --costs wake_up",
]


def failures(nearq, name):
    """What is wrong with the experiments on a machine: each ends, or is refused with a reason."""

    def failure(experiment):
        command = [nearq, *experiment.split(), "--quick", "--on", name]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return f"{experiment}: does not end"
        if run.returncode == 0 or (run.returncode == 2 and run.stderr.startswith("nearq: ")):
            return None
        return f"{experiment}: ended with {run.returncode}: {run.stderr.strip()[:300]}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [found for found in pool.map(failure, EXPERIMENTS) if found]


def main(folder, nearq, differences):
    known = known_differences(differences)
    compared, explained, wrong, seen = {}, 0, [], set()

    def differs(machine, fact, ours, theirs):
        nonlocal explained
        seen.add((machine, fact))
        line = known.get((machine, fact))
        if line == (str(ours), str(theirs)):
            explained += 1
        else:
            wrong.append(f"{machine} {fact} {ours} {theirs} (not explained)")

    def compare(machine, path, kind):
        origin = machine.split("/")[0] + " " + kind
        name = f"sysfs:{path}" if kind == "sysfs" else path
        ours, reason = by_nearq(nearq, name)
        theirs = by_lstopo(path, kind)
        if ours is None or theirs is None:
            if (ours is None) != (theirs is None):
                differs(machine, "machine", "refused" if ours is None else "read", "refused" if theirs is None else "read")
            if ours is None:
                print(f"{machine}: {reason}")
                return
        compared[origin] = compared.get(origin, 0) + 1
        for fact in FACTS if theirs else []:
            if ours[fact] != theirs[fact]:
                differs(machine, fact, ours[fact], theirs[fact])
        wrong.extend(f"{machine}: {failure}" for failure in failures(nearq, name))

    names = set()
    for file, path, kind in machines(folder):
        # A name that tells apart machines of different origins.
        origin = os.path.relpath(path, folder).split(os.sep)[0]
        machine = f"{origin}/{file}"
        names.add(origin)
        if kind == "xml":
            compare(machine, path, kind)
            continue
        scratch = tempfile.mkdtemp(prefix="nearq-machine-")
        try:
            for place in written(path, scratch) if kind == "header" else unpacked(path, scratch):
                compare(machine, place, "sysfs")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    # Of an origin that could not be had nothing is expected.
    stale = [key for key in known if key not in seen and key[0].split("/")[0] in names]
    wrong += [f"{machine} {fact}: no longer differs" for machine, fact in stale]
    for origin, count in sorted(compared.items()):
        print(f"{origin}: {count} machines")
    print(f"{sum(compared.values())} machines, {explained} differences explained, {len(wrong)} things wrong")
    for line in wrong:
        print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
