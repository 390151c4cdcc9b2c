"""Homes for the processes of a pool. Machines of several nodes are pretended: each of two CPUs is a place of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path

import pytest

import nearq

from .conftest import LONG

METHODS = ["fork", "spawn", "forkserver"]
CPUS = nearq.cpus()
NUMA_MAPS = Path("/proc/self/numa_maps")

several = pytest.mark.skipif(
    len(CPUS) < 2 or not NUMA_MAPS.exists(),
    reason="there is one CPU, or a kernel without NUMA; to have it: a machine with two, and CONFIG_NUMA",
)


def two_places(*, memory: bool = True) -> nearq.Homes:
    """Pretend that two CPUs are two places, both near the memory of the first node."""
    node = nearq.nodes()[0].id
    return nearq.Homes._pretend([(node, [CPUS[0]]), (node, [CPUS[1]])], memory=memory)


def where(seconds: float = 0.2) -> tuple[int, tuple[int, ...], str]:
    """Return this process, its CPUs and its memory policy; sleep, so that another process takes the next call."""
    time.sleep(seconds)
    policy = NUMA_MAPS.read_text().split()[1] if NUMA_MAPS.exists() else "default"
    return os.getpid(), tuple(sorted(os.sched_getaffinity(0))), policy


def counts(homes: nearq.Homes) -> list[int]:
    return [place.processes for place in homes.places()]


@several
@pytest.mark.many_processes
@pytest.mark.parametrize("method", METHODS)
def test_workers_of_an_executor_spread_over_the_homes(method: str) -> None:
    homes = two_places()
    context = multiprocessing.get_context(method)
    before = os.sched_getaffinity(0)
    with ProcessPoolExecutor(4, mp_context=context, initializer=homes.take) as pool:
        seen = {future.result(LONG) for future in [pool.submit(where) for _ in range(12)]}
        assert len({pid for pid, _, _ in seen}) == 4
        assert Counter(cpus for _, cpus, _ in seen) == {(CPUS[0],): 2, (CPUS[1],): 2}
        assert all(policy.startswith("prefer") for _, _, policy in seen)
        assert counts(homes) == [2, 2]
    assert counts(homes) == [0, 0], "homes are free when the processes have ended"
    assert os.sched_getaffinity(0) == before


@several
@pytest.mark.many_processes
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool_have_homes_and_so_have_their_successors(method: str) -> None:
    homes = two_places(memory=False)
    pool: Pool
    with multiprocessing.get_context(method).Pool(2, initializer=homes.take, maxtasksperchild=1) as pool:
        seen = pool.starmap(where, [(0.05,)] * 4, chunksize=1)
        assert {cpus for _, cpus, _ in seen} == {(CPUS[0],), (CPUS[1],)}
        assert all(policy == "default" for _, _, policy in seen)
        assert len({pid for pid, _, _ in seen}) == 4
        pool.close()
        pool.join()
    assert counts(homes) == [0, 0]


@several
def test_a_process_that_is_killed_frees_its_home() -> None:
    homes = two_places()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=homes.take) as pool:
        pid, _, _ = pool.submit(where, 0).result(LONG)
        assert sum(counts(homes)) == 1
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + LONG
        while sum(counts(homes)) and time.monotonic() < end:
            time.sleep(0.01)
    assert counts(homes) == [0, 0]


def take_and_leave(homes: nearq.Homes) -> list[object]:
    before = os.sched_getaffinity(0)
    seen: list[object] = [homes.take() in (0, 1)]
    first = os.sched_getaffinity(0)
    # The second time nothing of the first is left over.
    seen += [len(first) == 1, homes.take() in (0, 1), len(os.sched_getaffinity(0)) == 1, sum(counts(homes)) == 1]
    homes.leave()
    return [*seen, os.sched_getaffinity(0) == before, counts(homes) == [0, 0], where(0)[2] == "default"]


@several
def test_a_home_can_be_taken_twice_and_left() -> None:
    homes = two_places()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert all(pool.submit(take_and_leave, homes).result(LONG))


@several
def test_homes_without_their_maker_are_an_error() -> None:
    program = (
        "import nearq, pickle, sys\n"
        "homes = nearq.Homes._pretend([(0, [int(sys.argv[1])]), (0, [int(sys.argv[2])])])\n"
        "sys.stdout.buffer.write(pickle.dumps(homes))\n"
    )
    maker = [sys.executable, "-c", program, str(CPUS[0]), str(CPUS[1])]
    pickled = subprocess.run(maker, capture_output=True, check=True, timeout=LONG).stdout
    with pytest.raises(FileNotFoundError, match=r"the table of homes is not there: process [0-9]+ has ended"):
        pickle.loads(pickled)


@several
def test_a_joined_table_cannot_be_passed_on() -> None:
    joined = pickle.loads(pickle.dumps(two_places_kept := two_places()))
    assert [place.cpus for place in joined.places()] == [place.cpus for place in two_places_kept.places()]
    with pytest.raises(RuntimeError, match="passed on by that process alone"):
        pickle.dumps(joined)


@pytest.mark.parametrize("method", METHODS)
def test_on_one_place_nothing_is_set(method: str) -> None:
    node = nearq.nodes()[0]
    homes = nearq.Homes._pretend([(node.id, list(node.cpus))])
    assert "nothing is set" in homes.explain()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method), initializer=homes.take) as pool:
        _, cpus, policy = pool.submit(where, 0).result(LONG)
    assert (cpus, policy) == (tuple(sorted(os.sched_getaffinity(0))), "default")
    assert homes.take() is None
    homes.leave()


@pytest.mark.parametrize("scope", ["numa", "cache"])
def test_the_places_of_this_machine(scope: str) -> None:
    homes = nearq.Homes(scope)  # type: ignore[arg-type]
    places = homes.places()
    if scope == "numa":
        assert [(place.id, place.cpus) for place in places] == [(node.id, node.cpus) for node in nearq.nodes()]
    else:
        assert [place.cpus for place in places] == [pod.cpus for pod in nearq.pods("cache")]
    assert {place.memory for place in places} <= {node.id for node in nearq.nodes()}
    assert homes.explain() in repr(homes)
    initializer = nearq.home_initializer(scope)  # type: ignore[arg-type]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"), initializer=initializer) as pool:
        assert pool.submit(abs, -1).result(LONG) == 1


def test_an_unknown_scope_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match='"smt": no scope of homes; give one of numa, cache'):
        nearq.Homes("smt")  # type: ignore[arg-type]


@several
def test_explain_says_who_is_where() -> None:
    text = two_places().explain()
    assert text == f"processes at home on each node: 0 (CPUs {CPUS[0]}): 0, 1 (CPUs {CPUS[1]}): 0"
