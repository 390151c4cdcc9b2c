#!/usr/bin/python3
"""Compares the nodes that nearq and hwloc's lstopo find for the devices of machines: devices.py FOLDER NEARQ NEAR DIFFERENCES

FOLDER holds archives of /sys trees and XML files, however deep. Of each machine with devices that lstopo reads, its GPUs, network interfaces and
disks must be in `nearq topo` with the same nodes; of a /sys tree, the program NEAR (an example of nearq-topology) must find the same nodes for
each PCI device, interface and disk by its name as `--near` has it. lstopo's nodes of a device are those of the nearest object around it that has
some; all nodes, on a machine of several, mean that nobody says it. A line of DIFFERENCES is `MACHINE DEVICE NEARQ LSTOPO REASON...`. A difference
without a line fails, and so does a line without its difference.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from hwloc import known_differences, lstopo, machines

GPU_VENDORS = {"10de", "1002", "8086"}
BLOCK, NETWORK = 1 << 0, 1 << 4


def ids(nodeset):
    """The numbers in hwloc's notation of a set: words of 32 bits in hexadecimal, the highest first."""
    if nodeset.startswith("0xf...f"):
        return None
    bits = 0
    for word in nodeset.split(","):
        bits = bits << 32 | int(word or "0", 16)
    return frozenset(bit for bit in range(bits.bit_length()) if bits >> bit & 1)


def by_lstopo(path, kind):
    """The nodes of each device, by the name that --near gives it, and for GPUs by their PCI address. None if lstopo does not read the machine."""
    root = lstopo(path, kind, "--filter", "io:all")
    if root is None:
        return None
    every = frozenset(int(node.get("os_index")) for node in root.iter("object") if node.get("type") == "NUMANode")
    found = {}

    def visit(element, nodes, is_hardware):
        own = ids(element.get("nodeset")) if element.get("nodeset") else None
        nodes = own or nodes
        kind = element.get("type", "")
        near = nodes & every if nodes else every
        near = sorted(near) if len(every) == 1 or near != every else []
        if kind == "PCIDev":
            is_hardware = True
            address = element.get("pci_busid")
            found[f"pci:{address}"] = near
            pci_class, vendor = re.match(r"([0-9a-f]+) \[([0-9a-f]+):", element.get("pci_type")).groups()
            if pci_class == "1200" or (pci_class.startswith("03") and vendor in GPU_VENDORS):
                found[f"gpu at {address}"] = near
        elif kind == "OSDev" and is_hardware:
            number = int(element.get("osdev_type"))
            # Version 2 has numbers, version 3 sets of bits.
            bits = number if root.get("version", "").startswith("3") else {0: BLOCK, 2: NETWORK}.get(number, 0)
            if bits & BLOCK:
                found[f"block:{element.get('name')}"] = near
            elif bits & NETWORK:
                found[f"netdev:{element.get('name')}"] = near
        for child in element.findall("object"):
            visit(child, nodes, is_hardware)

    for element in root.findall("object"):
        visit(element, None, False)
    return found


def by_topo(nearq, name):
    """The nodes of the devices that `nearq topo` lists."""
    run = subprocess.run([nearq, "topo", "--json", "--on", name], capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        return None
    found = {}
    for device in json.loads(run.stdout)["devices"]:
        is_gpu = device["kind"] == "gpu"
        found[f"gpu at {device['address']}" if is_gpu else f"{device['kind']}:{device['name']}"] = device["node_ids"]
    return found


def by_name(near, root, names):
    """The nodes of devices by their names, as --near has them; nothing if that is refused because nobody says them."""
    run = subprocess.run([near, root, *names], capture_output=True, text=True, timeout=60, check=True)
    found = {}
    for name, line in zip(names, run.stdout.splitlines(), strict=True):
        answer = line.removeprefix(name).strip()
        if answer.startswith("["):
            found[name] = json.loads(answer)
        else:
            found[name] = [] if "does not say which node" in answer else answer
    return found


def main(folder, nearq, near, differences):
    known = known_differences(differences)
    seen, wrong, compared, read = set(), [], 0, 0

    def compare(machine, devices, ours, theirs):
        nonlocal compared
        for device in devices:
            compared += 1
            mine, other = ours.get(device, "missing"), theirs.get(device, "missing")
            if mine != other:
                text = [value if isinstance(value, str) else ",".join(map(str, value)) or "nobody" for value in (mine, other)]
                key = (machine, device.replace(" ", "-"))
                seen.add(key)
                if known.get(key) != tuple(text):
                    wrong.append(" ".join([*key, *text]))

    def machine(name, path, kind):
        nonlocal read
        theirs = by_lstopo(path, kind)
        ours = by_topo(nearq, f"sysfs:{path}" if kind == "sysfs" else path)
        if not theirs or ours is None:
            return
        read += 1
        listed = [device for device in theirs if not device.startswith("pci:")]
        compare(name, sorted({*listed, *ours}), ours, theirs)
        if kind == "sysfs":
            names = [device for device in theirs if not device.startswith("gpu")]
            compare(name, names, by_name(near, path, names), theirs)

    for name, path, kind in machines(folder):
        if kind == "xml":
            machine(name, path, kind)
        if kind != "sysfs":
            continue
        # Most archives have no devices, and many files.
        files = subprocess.run(["tar", "-tf", path], capture_output=True, text=True, check=True).stdout
        if "/sys/bus/pci/devices/" not in files:
            continue
        with tempfile.TemporaryDirectory(prefix="nearq-devices-") as scratch:
            # Some have device files, which only root may make.
            subprocess.run(["tar", "-xf", path, "-C", scratch, "--no-same-permissions"], check=False, stderr=subprocess.DEVNULL)
            for place, folders, _ in os.walk(scratch):
                if os.path.isdir(os.path.join(place, "sys/bus/pci/devices")):
                    folders.clear()
                    machine(name, place, kind)
    wrong += [f"{machine} {device}: no longer differs" for machine, device in known if (machine, device) not in seen]
    print(f"{read} machines with devices, {compared} answers compared, {len(seen)} differ, {len(wrong)} things wrong")
    for line in wrong:
        print(f"  {line}")
    return 1 if wrong or not read else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
