"""An executor whose threads are nearq's workers.

A call is an item of a nearq queue. It goes to the pod of the CPU that submitted it, and idle workers of other pods help. A worker that
sleeps in a call is replaced, up to `max_workers` calls at once.

What a call needs is in `_State`, which does not refer to its executor. So an executor can be collected while its calls run. Calls keep
their state alive, and the state its queue.

Order of locks: a state's lock is the only one, and no other code runs under it but the queue's, which is compiled.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor as _BaseExecutor
from concurrent.futures import Future
from concurrent.futures._base import LOGGER
from concurrent.futures.thread import BrokenThreadPool
from typing import Any, Final, Literal, ParamSpec, TypeVar

from nearq import _nearq
from nearq._topology import Scope, checked_node

P = ParamSpec("P")
T = TypeVar("T")

# The highest number of active items of a queue.
_MOST_WORKERS: Final = 2048

_BROKEN: Final = "A thread initializer failed, the executor is not usable anymore"

# The states that exist. Those with calls are kept alive by their calls.
_states: weakref.WeakSet[_State] = weakref.WeakSet()
# Whether the interpreter has begun to exit: no call is accepted any more.
_exiting = False
_numbers = itertools.count()
# Of each worker: the number of the executor whose call it ran last.
_worker = threading.local()


class _State:
    """What an executor and its calls share."""

    def __init__(
        self,
        queue: _nearq.Queue,
        thread_name_prefix: str,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        self.queue = queue
        self.number = next(_numbers)
        self.thread_name_prefix = thread_name_prefix
        self.initializer = initializer
        self.initargs = initargs
        # Of each worker that has run a call: its number among them, and whether the initializer has run.
        self.local = threading.local()
        self.thread_numbers = itertools.count()
        self.reset()
        self.closed = False
        self.broken: str | Literal[False] = False
        _states.add(self)

    def reset(self) -> None:
        """Begin without calls: a new state, or one in the child of a fork, where calls are the parent's."""
        self.lock = threading.Lock()
        self.ended = threading.Condition(self.lock)
        # Submitted and not ended. The order is that of submission.
        self.calls: dict[_Call, None] = {}

    def end(self, call: _Call) -> None:
        with self.lock:
            # In the child of a fork, a call of the parent's may end that is not there any more.
            self.calls.pop(call, None)
            if not self.calls:
                self.ended.notify_all()

    def wait(self) -> None:
        """Wait until no call is left."""
        with self.lock:
            while self.calls:
                self.ended.wait()

    def prepare_thread(self) -> None:
        """Make a worker one of this executor's threads before it runs a call: name it and run the initializer, both once."""
        if getattr(_worker, "number", None) == self.number and not self.broken:
            return
        if not hasattr(self.local, "number"):
            self.local.number = next(self.thread_numbers)
        threading.current_thread().name = f"{self.thread_name_prefix}_{self.local.number}"
        if self.initializer is not None and not self.broken and not hasattr(self.local, "initialized"):
            try:
                self.initializer(*self.initargs)
            except BaseException:
                LOGGER.critical("Exception in initializer:", exc_info=True)
                self.broken = _BROKEN
            else:
                self.local.initialized = True
        # Not in the handler above: the initializer's exception would keep its frames alive.
        if self.broken:
            raise BrokenThreadPool(self.broken)
        _worker.number = self.number


class _Call:
    """A submitted call, which a worker runs."""

    __slots__ = ("args", "fn", "future", "kwargs", "state")

    def __init__(
        self,
        state: _State,
        future: Future[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.state = state
        self.future = future
        self.fn = fn
        self.args = args
        self.kwargs = kwargs

    def __call__(self) -> None:
        state, future = self.state, self.future
        try:
            if future.set_running_or_notify_cancel():
                try:
                    state.prepare_thread()
                    result = self.fn(*self.args, **self.kwargs)
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
        except BaseException:
            LOGGER.critical("Exception in worker", exc_info=True)
        finally:
            state.end(self)
            # The traceback of an exception refers to this frame, and the future to the exception: without this they form a cycle.
            del self, state, future


class Executor(_BaseExecutor):
    """A `concurrent.futures.Executor` whose threads are nearq's workers.

    At most `max_workers` calls run at once; as for `ThreadPoolExecutor`, the default is the number of CPUs that the process may use plus
    four, and at most 32.

    All executors of a process share their workers. `name` is what the command `nearq` shows, `thread_name_prefix` (if empty, `name`)
    what `threading.current_thread().name` begins with during a call.

    `scope` groups the CPUs into pods: a call runs in the pod of the CPU that submitted it, or where CPUs are idle; with `strict`,
    only in that pod. If it is None, the scope is that of `NEARQ_DEFAULT_SCOPE`, or `cache_shard`. `home` is a node on which calls run
    while its CPUs can keep up, and from which they have their memory: its number, or "auto" for the least loaded one.

    Each worker calls `initializer(*initargs)` before its first call of this executor. If that fails, all further calls fail with
    `concurrent.futures.thread.BrokenThreadPool`.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        name: str = "python",
        scope: Scope | None = None,
        strict: bool = False,
        home: int | Literal["auto"] | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        if max_workers is None:
            max_workers = min(32, _cpu_count() + 4)
        if max_workers <= 0:
            raise ValueError(f"max_workers must be greater than 0, and is {max_workers}")
        if max_workers > _MOST_WORKERS:
            raise ValueError(f"max_workers must be at most {_MOST_WORKERS}, and is {max_workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if isinstance(home, int):
            checked_node(home)
        # Others read it, as that of ThreadPoolExecutor: dask uses it as the number of workers.
        self._max_workers = max_workers
        self._name = name
        queue = _nearq.Queue(name, max_workers, scope, strict, home)
        self._state = _State(queue, thread_name_prefix or name, initializer, initargs)

    @property
    def max_workers(self) -> int:
        """The most calls that run at once."""
        return self._max_workers

    @property
    def home(self) -> int | None:
        """The number of the node where calls are at home, if they have a home."""
        return self._state.queue.home()

    @property
    def _broken(self) -> str | Literal[False]:
        return self._state.broken

    def __repr__(self) -> str:
        state = self._state
        condition = "broken" if state.broken else "shut down" if state.closed else "open"
        return f"<nearq.Executor {self._name!r}: {condition}, max_workers={self._max_workers}>"

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue `fn(*args, **kwargs)`, and return a future for its result.

        Raises RuntimeError after a shutdown, or when the interpreter has begun to exit.
        """
        state = self._state
        future: Future[T] = Future()
        call = _Call(state, future, fn, args, kwargs)
        try:
            with state.lock:
                if state.broken:
                    raise BrokenThreadPool(state.broken)
                if state.closed:
                    raise RuntimeError("cannot schedule new futures after shutdown")
                if _exiting:
                    raise RuntimeError("cannot schedule new futures after interpreter shutdown")
                state.calls[call] = None
            # Not under the lock: it asks `fn` for its name, which may run any code.
            state.queue.spawn(call, fn)
        except BaseException:
            # No worker has it, so nothing else would end it.
            state.end(call)
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.

        With `wait`, return when all have ended. With `cancel_futures`, cancel those that have not begun.
        """
        state = self._state
        with state.lock:
            state.closed = True
            calls = list(state.calls) if cancel_futures else []
        # Callbacks of the futures run here.
        for call in calls:
            call.future.cancel()
        del calls
        if wait:
            # The executor whose call a worker ran last is that of the call that it runs now.
            if getattr(_worker, "number", None) == state.number:
                raise RuntimeError("a call cannot wait for its own executor to shut down")
            state.wait()


def _cpu_count() -> int:
    """Return how many CPUs this Python says that the process has."""
    count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)
    return count() or 1


def _at_exit() -> None:
    """Run what was submitted, then keep workers out of the interpreter, which ends."""
    global _exiting
    _exiting = True
    try:
        for state in list(_states):
            # A thread that submits has seen `_exiting` by then, or its call is waited for.
            state.wait()
    finally:
        # After Ctrl-C, what has not begun is forgotten. What runs is waited for: the interpreter must not end under it.
        _nearq.close()


def _after_fork_in_child() -> None:
    _nearq.after_fork_in_child()
    for state in list(_states):
        state.reset()
        state.queue.after_fork_in_child()


# Before the interpreter waits for threads that are not daemons, as for ThreadPoolExecutor: those may submit calls until then.
threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_after_fork_in_child)
