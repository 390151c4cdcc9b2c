#!/usr/bin/python3
"""Compares programs on nearq with the same on rayon's own pools: programs.py FOLDER ROUNDS

FOLDER/stock/bin and FOLDER/patched/bin have the programs, as programs.sh builds them; those that are missing are left out. First each
program runs once in each variant, and must print the same. Then, unless ROUNDS is 0, it runs that often in each, in alternating order,
and FOLDER/rayon-programs.txt and .json say how long that took.
"""

import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

CPUS = len(os.sched_getaffinity(0))
# The folder of the programs, and RAYON_NUM_THREADS. Where it is not set, a patched pool has two numbers for each CPU, a stock one has one.
VARIANTS = {"stock": ("stock", None), "patched": ("patched", None), "patched, same size": ("patched", str(CPUS))}
HEADINGS = {
    "patched": "Without a setting: nearq has two numbers for each CPU, rayon has one",
    "patched, same size": "With pools of the same size as rayon's (RAYON_NUM_THREADS)",
}
# What rayon-demo prints of time: durations, and factors that it computes from them.
DURATION = re.compile(r"([0-9.]+) ?(ns|µs|ms|s)\b")
FACTOR = re.compile(r"[0-9.]+x|cpu usage: +[0-9.]+%")
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def workloads(folder):
    """Commands, each with the names of what is measured. Of rayon-demo's programs that is the time which they print for what runs in
    parallel: the line begins with this text. Of the others it is the whole time. Of noop, which sleeps, only the CPU time counts."""
    yield "rayon-demo nbody bench --mode par --ticks 50", {"nbody": "Parallel time"}
    yield "rayon-demo nbody bench --mode parreduce --ticks 50", {"nbody reduce": "ParReduce time"}
    yield "rayon-demo mergesort bench --size 20000000", {"mergesort": "par:"}
    yield "rayon-demo quicksort bench --par-only --size 20000000", {"quicksort": "par:"}
    yield "rayon-demo matmul bench --size 1024", {"matmul": "par z-order:", "matmul Strassen": "par strassen:"}
    yield "rayon-demo sieve bench", {"sieve": "parallel:"}
    yield f"rayon-demo tsp bench {folder}/rayon/rayon-demo/data/tsp/dj15.tsp", {"tsp": "Total search time:"}
    yield "rayon-demo life bench --size 500", {"life": "parallel:", "life par_bridge": "par_bridge:"}
    yield "rayon-demo noop --iters 300 --sleep 10", {"noop": None}
    yield "b3sum" + f" {folder}/large-0 {folder}/large-1" * 3, {"b3sum": None}
    yield f"oxipng -o 3 --stdout {folder}/picture.png", {"oxipng": None}
    yield f"tokei --no-ignore-parent {folder}/vendor", {"tokei": None}
    yield f"rav1e --quiet --speed 8 --tiles 4 -o - {folder}/film.y4m", {"rav1e": None}


def make_inputs(folder):
    """Writes large files, a picture and a film, the same ones each time."""
    chance = random.Random(1)
    for number in range(2):
        with open(f"{folder}/large-{number}", "wb") as file:
            for _ in range(512):
                file.write(chance.randbytes(1 << 20))

    width, height = 1200, 800
    with open(f"{folder}/picture.png", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        lines = bytearray()
        for y in range(height):
            lines.append(0)  # no filter
            lines += bytes((x * y // 997 + c * x // 5 + chance.getrandbits(2)) & 255 for x in range(width) for c in range(3))
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        for kind, data in [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]:
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))

    width, height = 512, 384
    with open(f"{folder}/film.y4m", "wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F25:1 C420jpeg\n".encode())
        for number in range(12):
            file.write(b"FRAME\n")
            for y in range(height):
                file.write(bytes((x * (y + number) // 67 + (x + 3 * number) // 2 + chance.getrandbits(2)) & 255 for x in range(width)))
            file.write(bytes([128 + number]) * (width * height // 2))


def run(folder, variant, command):
    """Runs a program. Returns what it prints, and the seconds and the CPU seconds that it took."""
    built, threads = VARIANTS[variant]
    program, *arguments = command.split()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAYON_", "NEARQ_"))}
    if threads:
        environment["RAYON_NUM_THREADS"] = threads
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        process = subprocess.Popen([f"{folder}/{built}/bin/{program}", *arguments], env=environment, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            sys.exit(f"wrong: {variant}: {command} ends with {process.returncode}: {errors.read().decode(errors='replace')[-2000:]}")
        return output.read(), elapsed, usage.ru_utime + usage.ru_stime


def comparable(command, printed):
    """What must be the same each time: without times, and where tokei's languages of equal size may swap, without order."""
    if command.startswith("rayon-demo"):
        return FACTOR.sub("", DURATION.sub("", printed.decode())).split()
    if command.startswith("tokei"):
        return sorted(printed.splitlines())
    return printed


def same(folder, command):
    """Whether all variants print the same, and something."""
    printed = {variant: comparable(command, run(folder, variant, command)[0]) for variant in VARIANTS}
    wrong = [variant for variant in VARIANTS if printed[variant] != printed["stock"] or not printed[variant]]
    for variant in wrong:
        print(f"wrong: {variant}: {command} does not print what stock prints")
    return not wrong


def measure(folder, rounds, loads):
    """For each name that is measured, and each variant, the times of all rounds: seconds and CPU seconds."""
    times = {name: {variant: [] for variant in VARIANTS} for names in loads.values() for name in names}
    for number in range(rounds):
        for command, names in loads.items():
            for variant in list(VARIANTS)[:: -1 if number % 2 else 1]:
                printed, elapsed, cpu = run(folder, variant, command)
                for name, beginning in names.items():
                    seconds = elapsed
                    if beginning:
                        [line] = [each for each in printed.decode().splitlines() if each.lstrip().startswith(beginning)]
                        value, unit = DURATION.search(line.split(":", 1)[1]).groups()
                        seconds = float(value) * SECONDS[unit]
                    times[name][variant].append((seconds, cpu))
    return times


def machine_time():
    """The CPU time since this machine started, in seconds: all, what the host took, and idle."""
    with open("/proc/stat") as file:
        user, nice, system, idle, wait, interrupts, soft, stolen = map(int, file.readline().split()[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    return [each / tick for each in (user + nice + system + idle + wait + interrupts + soft + stolen, stolen, idle + wait)]


def conditions(load, before, own_before):
    """What the figures depend on, in the form of nearq's own results."""
    total, stolen, idle = (now - then for now, then in zip(machine_time(), before))
    own = sum(os.times()[:4]) - own_before
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {
        "kernel": os.uname().release,
        "cpu_model": model and model[1],
        "cpus": CPUS,
        "steal_percent": 100 * stolen / total,
        "others_percent": 100 * max(0, total - stolen - idle - own) / total,
        "load": load,
    }


def row(scenario, variant, metric, values):
    """A row of a result, in the form of nearq's own results."""
    return {
        "scenario": scenario,
        "row": variant,
        "metric": metric,
        "unit": "s",
        "median": statistics.median(values),
        "mean": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0,
        "min": min(values),
        "max": max(values),
        "runs": len(values),
        "published": None,
    }


def ratios(times, variant):
    """How a variant compares with stock, for each name: the speed, by the medians, in the worst and the best round, and by the minima;
    and the CPU time by the medians."""
    for name, runs in times.items():
        (seconds, cpu), (our_seconds, our_cpu) = zip(*runs["stock"]), zip(*runs[variant])
        rounds = [stock / ours for stock, ours in zip(seconds, our_seconds)]
        yield {
            "name": name,
            "variant": variant,
            "speed": statistics.median(seconds) / statistics.median(our_seconds),
            "least": min(rounds),
            "most": max(rounds),
            "of_minima": min(seconds) / min(our_seconds),
            "cpu": statistics.median(our_cpu) / statistics.median(cpu),
        }


def targets(compared, demo):
    """The goals for rayon-demo's programs, without a setting."""
    patched = {each["name"]: each for each in compared if each["variant"] == "patched" and each["name"] in demo}
    speeds = {name: each["speed"] for name, each in patched.items() if name != "noop"}
    if not speeds:
        return []
    slowest = min(speeds, key=speeds.get)
    mean = statistics.geometric_mean(speeds.values())
    idle = patched["noop"]["cpu"]
    return [
        {"name": "speed, the slowest", "of": slowest, "ratio": speeds[slowest], "goal": 0.95, "met": speeds[slowest] >= 0.95},
        {"name": "speed, geometric mean", "ratio": mean, "goal": 1.0, "met": mean >= 1.0},
        {"name": "CPU time of noop", "ratio": idle, "goal": 1.0, "met": idle <= 1.0},
    ]


def table(times, compared):
    """The lines that show the ratios of one variant."""
    yield f"{'':20}{'stock':>8}{'nearq':>8}{'speed':>8}{'least':>8}{'most':>8}{'of minima':>11}{'CPU: stock':>13}{'nearq':>8}{'ratio':>8}"
    yield "-" * 100
    for each in compared:
        pair = [list(zip(*times[each["name"]][variant])) for variant in ("stock", each["variant"])]
        seconds, cpu = ([statistics.median(values[which]) for values in pair] for which in (0, 1))
        speed = [f"{each[which]:8.2f}" for which in ("speed", "least", "most")] + [f"{each['of_minima']:11.2f}"]
        if each["name"] == "noop":
            speed = [f"{'-':>8}"] * 3 + [f"{'-':>11}"]
        yield f"{each['name']:20}{seconds[0]:8.3f}{seconds[1]:8.3f}{''.join(speed)}{cpu[0]:13.3f}{cpu[1]:8.3f}{each['cpu']:8.2f}"


def report(environment, rounds, times, compared, goals):
    """The lines of the text."""
    yield "Real programs on nearq and on rayon's own pools: compat/rayon-core/tests/programs.sh"
    yield f"{environment['cpu_model']}, {CPUS} CPUs, Linux {environment['kernel']}"
    yield (f"load before the run {environment['load'][0]:.2f}, stolen by the host {environment['steal_percent']:.2f} %, "
           f"used by other programs {environment['others_percent']:.1f} %")
    yield f"{rounds} rounds in alternating order, medians, in seconds. Speed is stock's time divided by nearq's; least and most are single"
    yield "rounds. Of rayon-demo's programs, those from nbody to noop, the time counts that they print for what runs in parallel; of the"
    yield "others the whole time; of noop, which sleeps, the CPU time. CPU time is that of the whole process, with what runs on one thread."
    yield "Every program printed the same in all variants; nbody, matmul and life print nothing but times. In all, loops begin at a multiple"
    yield "of 64 bytes, so that it is not the place of a loop that decides."
    for variant, heading in HEADINGS.items():
        yield from ("", heading, "")
        yield from table(times, [each for each in compared if each["variant"] == variant])
    yield from ("", "Targets for rayon-demo, without a setting: ratios of nearq to stock", "")
    for each in goals:
        sense = "at most" if each["name"].startswith("CPU") else "at least"
        name = f"{each['name']}: {each['of']}" if "of" in each else each["name"]
        yield f"{name:44}{each['ratio']:6.2f}   goal {sense:8} {each['goal']:.2f}   {'met' if each['met'] else 'missed'}"


def main(folder, rounds):
    folder = os.path.abspath(folder)
    make_inputs(folder)
    loads = {command: names for command, names in workloads(folder) if os.path.exists(f"{folder}/patched/bin/{command.split()[0]}")}
    if not all([same(folder, command) for command in loads]):
        sys.exit(1)
    print(f"ok: {len(loads)} commands print the same on nearq and on rayon's own pools")
    if rounds == 0:
        return
    load, before, own = os.getloadavg(), machine_time(), sum(os.times()[:4])
    times = measure(folder, rounds, loads)
    environment = conditions(load, before, own)
    compared = [each for variant in HEADINGS for each in ratios(times, variant)]
    demo = [name for command, names in loads.items() if command.startswith("rayon-demo") for name in names]
    goals = targets(compared, demo)
    result = {
        "experiment": "rayon-programs",
        "machine": "here",
        "environment": environment,
        "parameters": {
            "commands": [each.replace(f"{folder}/", "") for each in loads],
            "rounds": rounds,
            "ratios": compared,
            "targets": goals,
        },
        "rows": [
            row(name, variant, metric, [values[which] for values in times[name][variant]])
            for name in times
            for variant in VARIANTS
            for which, metric in enumerate(["elapsed_s", "cpu_seconds"])
        ],
    }
    with open(f"{folder}/rayon-programs.json", "w") as file:
        file.write(json.dumps(result, indent=2) + "\n")
    with open(f"{folder}/rayon-programs.txt", "w") as file:
        file.writelines(f"{line}\n" for line in report(environment, rounds, times, compared, goals))
    with open(f"{folder}/rayon-programs.txt") as file:
        print(file.read(), end="")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
