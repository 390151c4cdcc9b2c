"""Home nodes for processes and threads: the node on whose CPUs they run and from which they have their memory.

The homes here are hard: a thread or process at home waits for its node's CPUs, even if other CPUs are idle. On a machine with one node
nothing is set.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from nearq import _nearq
from nearq._topology import checked_node


class AtHome:
    """The calling thread is at home on a node; as a context manager, until the block ends.

    A thread that enters several homes leaves the last one first.
    """

    def __init__(self, node: int | str | None = None) -> None:
        device = node if isinstance(node, str) else None
        number = None if isinstance(node, str) else checked_node(node)
        self._number, self._node, self._why = _nearq.enter_home(number, device)

    @property
    def node(self) -> int | None:
        """The number of the node."""
        return self._node

    def explain(self) -> str:
        """Return in words why it is this node; on a machine with one node, that nothing was set."""
        return self._why

    def leave(self) -> None:
        """Give the thread the CPUs and the memory policy that it had before.

        Raises RuntimeError in another thread, the second time, or if the thread has entered another home since and not left it.
        """
        _nearq.leave_home(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<nearq.AtHome on node {self._node}>"


def at_home(node: int | str | None = None) -> AtHome:
    """Bind the calling thread to a node, to that of a device such as "gpu:0", or to the one with the fewest homes of this process.

    It runs on the node's CPUs only, and memory that it touches first comes from the node. Threads and processes that it starts from then on
    begin with both. So a process that calls this before its work begins is at home as a whole.

    The binding holds until the thread ends. `with at_home(1):` undoes it at the end of the block, `leave()` at once.

    Raises ValueError, which names the nodes that can be a home, or the devices that exist, if this one cannot or does not; OSError if the
    system refuses the CPUs.
    """
    return AtHome(node)


@dataclass(frozen=True, slots=True)
class Home:
    """A place where processes can be at home: a NUMA node, or a last-level cache."""

    id: int
    """The system's number of the node; for a cache, its number among the caches."""
    cpus: tuple[int, ...]
    """Its CPUs that may be used, in order; never empty."""
    memory: int
    """The number of the node from which its memory comes."""
    processes: int
    """How many processes are at home here."""


class Homes:
    """Homes for the processes of a pool: each takes the one where the fewest are at home.

    >>> from concurrent.futures import ProcessPoolExecutor
    >>> homes = Homes()
    >>> pool = ProcessPoolExecutor(initializer=homes.take)

    The process that makes this object keeps the table of homes, so it must live as long as processes begin. Pickled, the object is a
    reference to that table, for processes of the same machine: with the start methods `spawn` and `forkserver` too.

    `scope` is "numa" for nodes or "cache" for last-level caches. Without `memory`, processes keep their memory policy.
    """

    def __init__(self, scope: Literal["numa", "cache"] = "numa", *, memory: bool = True) -> None:
        self._open(scope, memory, None)

    def _open(self, scope: Literal["numa", "cache"], memory: bool, pretended: list[tuple[int, list[int]]] | None) -> None:
        """Make the table; tests pretend that there are other places."""
        self._scope = scope
        self._table = _nearq.HomeTable(scope, memory, pretended)

    @classmethod
    def _pretend(cls, places: list[tuple[int, list[int]]], *, memory: bool = True) -> Homes:
        homes = cls.__new__(cls)
        homes._open("numa", memory, places)
        return homes

    def __reduce__(self) -> tuple[Callable[..., Homes], tuple[Any, ...]]:
        return _join, (self._scope, self._table.text())

    def take(self) -> int | None:
        """Give this process a home, before its work begins, and return the home's number.

        All its threads get the home's CPUs. The calling thread, and what it starts from then on, has memory from the home first. A process
        that has a home gives it back first. The home is free again when the process has ended.

        On a machine with one node nothing is set, and the result is None. If the system refuses the memory policy, a warning says so, once.

        Raises OSError if the table is gone or the system refuses the CPUs; ValueError if the process may use none of the home's CPUs.
        """
        taken = self._table.take()
        if taken is None:
            return None
        number, _, _, refused = taken
        if refused is not None:
            warnings.warn(f"{refused}; this process has the CPUs of its home only", RuntimeWarning, stacklevel=2)
        return number

    def leave(self) -> None:
        """Give this process's home back, and the CPUs and the memory policy that it had before its first home."""
        self._table.leave()

    def places(self) -> tuple[Home, ...]:
        """Return the places, each with the number of processes that are at home there."""
        return tuple(Home(number, tuple(cpus), memory, count) for number, cpus, memory, count in self._table.places())

    def explain(self) -> str:
        """Return in words what there is; on a machine with one node, that nothing is set."""
        places = self.places()
        what = "node" if self._scope == "numa" else "last-level cache"
        if len(places) < 2:
            return f"there is one {what}: everything is at home, and nothing is set"
        each = (f"{place.id} (CPUs {_ranges(place.cpus)}): {place.processes}" for place in places)
        return f"processes at home on each {what}: " + ", ".join(each)

    def __repr__(self) -> str:
        return f"<nearq.Homes by {self._scope}: {self.explain()}>"


def home_initializer(scope: Literal["numa", "cache"] = "numa", *, memory: bool = True) -> Callable[[], object]:
    """Return an initializer that gives each worker process of a pool a home.

    For `multiprocessing.Pool(initializer=...)`, `concurrent.futures.ProcessPoolExecutor(initializer=...)` and others. It is
    `Homes(...).take`: make a `Homes` yourself to see how many processes are at home where. Keep it as long as the pool starts processes;
    the pool does.
    """
    return Homes(scope, memory=memory).take


def _join(scope: Literal["numa", "cache"], text: str | None) -> Homes:
    """Return the homes that another process has made."""
    homes = Homes.__new__(Homes)
    homes._scope = scope
    homes._table = _nearq.HomeTable.join(text)
    return homes


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return sorted numbers in short: 0-3,8."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
