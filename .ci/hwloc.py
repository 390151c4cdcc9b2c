"""What the comparisons with hwloc's lstopo share: the machines of a folder, lstopo's answer, and the list of known differences."""

import os
import subprocess
import xml.etree.ElementTree as ElementTree


def machines(folder):
    """The archives of /sys trees, XML files and C headers below a folder: each one's name without what tells its kind, its path and its kind."""
    for place, folders, files in sorted(os.walk(folder)):
        folders[:] = sorted(each for each in folders if each != "apt")
        for file in sorted(files):
            path = os.path.join(place, file)
            if file.endswith((".tar.bz2", ".tar.gz")):
                yield file.rsplit(".tar.", 1)[0], path, "sysfs"
            elif file.endswith(".xml"):
                yield file, path, "xml"
            elif file.endswith(".h"):
                yield file.removesuffix(".h"), path, "header"


def lstopo(path, kind, *options):
    """The root of lstopo's XML for the machine at a path. None if lstopo does not read the machine."""
    command = ["lstopo-no-graphics", "--input", path, "--if", {"sysfs": "fsroot", "xml": "xml"}[kind], "--disallowed", *options, "--of", "xml"]
    # What this machine's own CPUs say is not asked for.
    environment = {**os.environ, "HWLOC_COMPONENTS": "-x86", "HWLOC_HIDE_ERRORS": "2"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    try:
        return ElementTree.fromstring(run.stdout)
    except ElementTree.ParseError:
        return None


def known_differences(path):
    """The lines of a list of differences: nearq's answer and lstopo's, by machine and what was asked. Each line ends with a reason."""
    known = {}
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            machine, what, ours, theirs, reason = line.split(None, 4)
            assert reason.strip(), line
            known[machine, what] = (ours, theirs)
    return known
