"""A home for the calling thread."""

from __future__ import annotations

import os
import threading

import pytest

import nearq

from .conftest import LONG


def test_a_node_that_cannot_be_a_home_is_refused_with_those_that_can() -> None:
    nodes = [node.id for node in nearq.nodes()]
    with pytest.raises(ValueError, match=f"node 4711 cannot be a home: there is no such node; give .*{nodes[-1]}"):
        nearq.at_home(4711)
    with pytest.raises(ValueError, match="node -1 cannot be a home"):
        nearq.at_home(-1)


def test_a_thread_is_at_home_near_a_device() -> None:
    with pytest.raises(ValueError, match="no such network interface"):
        nearq.at_home("netdev:nosuch0")
    with pytest.raises(ValueError, match="no kind of device"):
        nearq.at_home("nosuch")
    disks = [disk for disk in os.listdir("/sys/block") if os.path.exists(f"/sys/block/{disk}/device")]
    if not disks:
        pytest.skip("this machine has no disk")
    nodes = nearq.nodes_near(f"block:{disks[0]}")
    with nearq.at_home(f"block:{disks[0]}") as home:
        assert home.node in nodes
        assert f"block:{disks[0]}" in home.explain() or len(nearq.nodes()) == 1


def test_a_thread_is_at_home_until_the_block_ends() -> None:
    before = os.sched_getaffinity(0)
    for node in nearq.nodes():
        with nearq.at_home(node.id) as home:
            assert home.node == node.id
            assert os.sched_getaffinity(0) == set(node.cpus) & before
            assert home.explain()
        assert os.sched_getaffinity(0) == before
        with pytest.raises(RuntimeError, match="left once"):
            home.leave()


def test_without_a_node_one_is_chosen() -> None:
    with nearq.at_home() as home:
        assert home.node in [node.id for node in nearq.nodes()]


def test_on_one_node_nothing_is_set_and_it_says_so() -> None:
    if len(nearq.nodes()) > 1:
        pytest.skip("the machine has several nodes; to have it: a machine with one")
    with nearq.at_home() as home:
        assert "one node" in home.explain()


def test_homes_are_left_in_reverse_order_once_and_by_their_thread() -> None:
    node = nearq.nodes()[0].id
    outer = nearq.at_home(node)
    inner = nearq.at_home(node)
    with pytest.raises(RuntimeError, match="entered last is left first"):
        outer.leave()
    errors: list[BaseException] = []

    def other() -> None:
        try:
            inner.leave()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(LONG)
    assert len(errors) == 1
    inner.leave()
    outer.leave()
    with pytest.raises(RuntimeError):
        outer.leave()


def test_a_binding_that_is_not_left_ends_with_its_thread() -> None:
    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=nearq.at_home)
    thread.start()
    thread.join(LONG)
    assert os.sched_getaffinity(0) == before
