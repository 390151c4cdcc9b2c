"""What the machine consists of, as far as this process may use it. Isolated CPUs are left out, unless it may use no others.

Each call reads the machine again: CPUs go offline, and a cpuset or an affinity mask may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from nearq import _nearq

Scope = Literal["cpu", "smt", "cache_shard", "cache", "numa", "system"]
"""How CPUs are grouped into pods: by CPU, core, part of a last-level cache, last-level cache, NUMA node, or not at all."""

SCOPES: Final[tuple[Scope, ...]] = ("cpu", "smt", "cache_shard", "cache", "numa", "system")
"""All scopes, from the finest to the coarsest."""


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node: CPUs and the memory that is near them."""

    id: int
    """The system's number."""
    cpus: tuple[int, ...]
    """Its CPUs that this process may use, in order; never empty."""
    memory: int | None
    """Bytes of memory that it has; None if the system does not say."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A group of CPUs that share a cache, a core or a node."""

    cpus: tuple[int, ...]
    """Its CPUs that this process may use, in order; never empty."""
    node: int | None
    """The node in which all of them are; None if there is no such node."""


def cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may use, by affinity mask, cpuset and what is online.

    Isolated CPUs (isolcpus=, nohz_full=, isolated cpuset partitions) are left out, unless there are no others:
    unbound and ordered queues keep off them.
    """
    return tuple(_nearq.cpus())


def nodes() -> tuple[Node, ...]:
    """Return the NUMA nodes of which this process may use CPUs."""
    return tuple(Node(node, tuple(cpus), memory) for node, cpus, memory in _nearq.nodes())


def nodes_near(device: str) -> tuple[int, ...]:
    """Return the numbers of the nodes that a device is near, usually one.

    It is named as in `nearq run --near`: gpu:0, pci:0000:41:00.0, netdev:eth0, block:nvme0n1, file:/data/x or ip:10.0.0.1.
    Raises ValueError, which names the devices that exist, if there is no such device or its node is not known.
    """
    return tuple(_nearq.nodes_near(device))


def pods(scope: Scope = "cache") -> tuple[Pod, ...]:
    """Return the pods of a scope of which this process may use CPUs.

    Raises ValueError, which names all scopes, if there is no such scope.
    """
    return tuple(Pod(tuple(cpus), node) for cpus, node in _nearq.pods(scope))


def checked_node(node: int | None) -> int | None:
    """Return the number of a node, unless no node can have it: the compiled part takes no negative number."""
    if node is not None and node < 0:
        raise ValueError(f"node {node} cannot be a home: there is no such node; give one of nearq.nodes()")
    return node
