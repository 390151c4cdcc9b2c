"""What the machine consists of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearq
from nearq import _nearq


def test_cpus_are_those_of_the_affinity_mask() -> None:
    allowed = os.sched_getaffinity(0)
    assert set(nearq.cpus()) <= allowed
    assert list(nearq.cpus()) == sorted(nearq.cpus())
    first = min(nearq.cpus())
    os.sched_setaffinity(0, {first})
    try:
        assert nearq.cpus() == (first,)
        assert [node.cpus for node in nearq.nodes()] == [(first,)]
        assert [pod.cpus for pod in nearq.pods("cpu")] == [(first,)]
    finally:
        os.sched_setaffinity(0, allowed)


def test_isolated_cpus_are_left_out_unless_there_are_no_others(tmp_path: Path) -> None:
    cpus = nearq.cpus()
    if len(cpus) < 2:
        pytest.skip("it takes two CPUs; to have it: those")
    isolated = tmp_path / "isolated"
    program = (
        "import json, nearq; print(json.dumps([nearq.cpus(), [cpu for node in nearq.nodes() for cpu in node.cpus],"
        "[cpu for pod in nearq.pods() for cpu in pod.cpus]]))"
    )

    # In a mount namespace, the kernel's list of isolated CPUs is a file of ours.
    def seen(*names: int) -> list[list[int]]:
        isolated.write_text(",".join(map(str, names)) + "\n")
        mount = 'mount --bind "$1" /sys/devices/system/cpu/isolated || exit 77; exec "$2" -c "$3"'
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh", str(isolated), sys.executable, program]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if ran.returncode == 77 or ran.stderr.startswith("unshare:"):
            pytest.skip("no mount namespaces; to have it: a system that lets users make them")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)  # type: ignore[no-any-return]

    for found in seen(cpus[-1]):
        assert found == list(cpus[:-1])
    for found in seen(*cpus):
        assert found == list(cpus)


def test_nodes_are_those_of_the_system() -> None:
    folder = Path("/sys/devices/system/node")
    known = {int(path.name[4:]) for path in folder.glob("node[0-9]*")} or {0}
    nodes = nearq.nodes()
    assert {node.id for node in nodes} <= known
    cpus = [cpu for node in nodes for cpu in node.cpus]
    assert sorted(cpus) == list(nearq.cpus())
    assert all(node.memory is None or node.memory > 0 for node in nodes)


@pytest.mark.parametrize("scope", nearq.SCOPES)
def test_the_pods_of_a_scope_divide_the_cpus(scope: nearq.Scope) -> None:
    pods = nearq.pods(scope)
    assert sorted(cpu for pod in pods for cpu in pod.cpus) == list(nearq.cpus())
    by_node = {cpu: node.id for node in nearq.nodes() for cpu in node.cpus}
    for pod in pods:
        if pod.node is not None:
            assert {by_node[cpu] for cpu in pod.cpus} == {pod.node}
    if scope == "cpu":
        assert all(len(pod.cpus) == 1 for pod in pods)
    if scope == "system":
        assert len(pods) == 1


def test_an_unknown_scope_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match='"llc": no such scope; give one of cpu, smt, cache_shard, cache, numa, system'):
        nearq.pods("llc")  # type: ignore[arg-type]


def test_the_scopes_are_those_of_the_library() -> None:
    assert list(nearq.SCOPES) == _nearq.scopes()
    assert nearq.pods() == nearq.pods("cache")


def test_descriptions_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        nearq.nodes()[0].id = 3  # type: ignore[misc]
    assert hash(nearq.nodes()[0]) == hash(nearq.nodes()[0])
