"""An executor runs calls as `concurrent.futures` promises."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future, wait
from concurrent.futures.thread import BrokenThreadPool
from typing import Any

import pytest

import nearq

from .conftest import LONG, Peak


class Thing:
    def method(self) -> None:
        pass


def test_it_is_an_executor_of_the_standard_library(executor: nearq.Executor) -> None:
    assert isinstance(executor, Executor)
    future = executor.submit(divmod, 17, 5)
    assert type(future) is Future
    assert future.result(LONG) == (3, 2)


def test_arguments_may_have_the_names_of_its_own(executor: nearq.Executor) -> None:
    def capture(*args: object, **kwargs: object) -> tuple[object, object]:
        return args, kwargs

    assert executor.submit(capture, 1, self=2, fn=3).result(LONG) == ((1,), {"self": 2, "fn": 3})


def test_map_keeps_the_order(executor: nearq.Executor) -> None:
    assert list(executor.map(pow, range(200), range(200))) == [n**n for n in range(200)]
    assert list(executor.map(abs, [-1, -2], chunksize=2)) == [1, 2]
    with pytest.raises(TimeoutError):
        list(executor.map(time.sleep, [0, 2], timeout=0.05))


@pytest.mark.skipif(sys.version_info < (3, 14), reason="map has a buffersize from Python 3.14 on")
def test_map_reads_no_further_than_its_buffer(executor: nearq.Executor) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    arguments: dict[str, Any] = {"buffersize": 3}
    results = executor.map(abs, numbers(), **arguments)
    assert next(results) == 0
    assert len(taken) <= 4


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_exception_of_a_call_is_the_future_s(executor: nearq.Executor, kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind("of the call")

    future = executor.submit(fail)
    error = future.exception(LONG)
    assert type(error) is kind
    assert error.args == ("of the call",)
    # The worker goes on.
    assert executor.submit(abs, -1).result(LONG) == 1


def test_what_has_not_begun_can_be_cancelled() -> None:
    begun, release = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        release.wait(LONG)

    with nearq.Executor(1) as executor:
        running = executor.submit(hold)
        assert begun.wait(LONG)
        waiting = executor.submit(abs, -1)
        assert waiting.cancel()
        assert not running.cancel()
        release.set()
        with pytest.raises(CancelledError):
            waiting.result(LONG)
    assert waiting._state == "CANCELLED_AND_NOTIFIED"


def test_a_shutdown_waits_and_may_cancel() -> None:
    begun, release = threading.Event(), threading.Event()

    def hold() -> str:
        begun.set()
        release.wait(LONG)
        return "held"

    executor = nearq.Executor(1)
    running = executor.submit(hold)
    assert begun.wait(LONG)
    waiting = [executor.submit(abs, -n) for n in range(10)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    assert not running.done()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, -1)
    release.set()
    executor.shutdown()
    assert running.result(0) == "held"
    executor.shutdown()


def test_a_shutdown_without_waiting_runs_what_was_submitted() -> None:
    executor = nearq.Executor(2)
    futures = [executor.submit(abs, -n) for n in range(100)]
    executor.shutdown(wait=False)
    assert [future.result(LONG) for future in futures] == list(range(100))


def test_an_executor_that_is_dropped_runs_what_was_submitted_and_is_freed() -> None:
    release = threading.Event()
    executor = nearq.Executor(1)
    reference = weakref.ref(executor)
    state = weakref.ref(executor._state)
    first = executor.submit(release.wait, LONG)
    rest = [executor.submit(abs, -n) for n in range(10)]
    del executor
    gc.collect()
    assert reference() is None
    release.set()
    assert first.result(LONG)
    assert [future.result(LONG) for future in rest] == list(range(10))
    wait_until(lambda: state() is None)


def test_a_call_that_would_wait_for_itself_is_refused(executor: nearq.Executor) -> None:
    with pytest.raises(RuntimeError, match="own executor"):
        executor.submit(executor.shutdown).result(LONG)
    # But it may shut down another one.
    other = nearq.Executor(1)
    other.submit(abs, -1)
    with nearq.Executor(1) as third:
        third.submit(other.shutdown).result(LONG)


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_calls_run_at_once_than_asked_for(most: int) -> None:
    peak = Peak()

    def work() -> None:
        with peak:
            time.sleep(0.01)

    with nearq.Executor(most) as executor:
        for _ in range(40):
            executor.submit(work)
    assert peak.most == most


def test_calls_that_sleep_run_side_by_side() -> None:
    # Each waits for all others: they end only if all of them run at once, on more workers than there are CPUs.
    count = 12
    barrier = threading.Barrier(count)
    with nearq.Executor(count) as executor:
        futures = [executor.submit(barrier.wait, LONG) for _ in range(count)]
        assert sorted(future.result(LONG) for future in futures) == list(range(count))


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def test_calls_that_compute_start_no_flood_of_threads() -> None:
    def compute() -> int:
        until = time.monotonic() + 0.02
        most = 0
        while time.monotonic() < until:
            most = max(most, thread_count())
        return most

    before = thread_count()
    with nearq.Executor(4) as executor:
        most = max(executor.map(lambda _: compute(), range(60)))
    # Besides those that run calls: one that sleeps beside them for each CPU, the monitor, and the thread of the control socket.
    assert most <= before + 4 + len(nearq.cpus()) + 3


def test_a_worker_keeps_its_thread_state() -> None:
    local = threading.local()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    def count() -> tuple[int, int, int]:
        local.calls = getattr(local, "calls", 0) + 1
        variable.set(variable.get() + 1)
        return threading.get_ident(), local.calls, variable.get()

    with nearq.Executor(1) as executor:
        seen = [executor.submit(count).result(LONG) for _ in range(50)]
    by_thread: dict[int, int] = {}
    for thread, calls, value in seen:
        by_thread[thread] = by_thread.get(thread, 0) + 1
        assert calls == value == by_thread[thread]
    assert variable.get() == 0


def test_threads_have_the_name_of_the_executor() -> None:
    def name() -> str:
        return threading.current_thread().name

    with nearq.Executor(1, name="first") as first, nearq.Executor(1, thread_name_prefix="second") as second:
        for _ in range(5):
            assert first.submit(name).result(LONG).startswith("first_")
            assert second.submit(name).result(LONG).startswith("second_")


def test_an_initializer_runs_once_in_each_thread() -> None:
    ran: list[int] = []
    barrier = threading.Barrier(3)

    def initialize(number: int) -> None:
        ran.append(threading.get_ident())
        assert number == 7

    def work() -> int:
        barrier.wait(LONG)
        assert threading.get_ident() in ran
        return threading.get_ident()

    with nearq.Executor(3, initializer=initialize, initargs=(7,)) as executor:
        threads = set()
        for _ in range(5):
            threads |= {future.result(LONG) for future in [executor.submit(work) for _ in range(3)]}
    assert sorted(ran) == sorted(threads)


def test_an_initializer_that_fails_breaks_the_executor(caplog: pytest.LogCaptureFixture) -> None:
    def initialize() -> None:
        raise OSError("no database")

    executor = nearq.Executor(2, initializer=initialize)
    with caplog.at_level(logging.CRITICAL, "concurrent.futures"):
        future = executor.submit(abs, -1)
        with pytest.raises(BrokenThreadPool):
            future.result(LONG)
    assert "no database" in caplog.text
    with pytest.raises(BrokenThreadPool):
        executor.submit(abs, -1)
    assert "broken" in repr(executor)
    executor.shutdown()


def test_a_result_keeps_nothing_of_its_call_alive(executor: nearq.Executor) -> None:
    thing = Thing()
    reference = weakref.ref(thing)
    future = executor.submit(thing.method)
    del thing
    future.result(LONG)
    wait_until(lambda: reference() is None)


def test_an_exception_makes_no_cycle_with_its_call(executor: nearq.Executor) -> None:
    def fail(thing: Thing) -> None:
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        thing = Thing()
        reference = weakref.ref(thing)
        future = executor.submit(fail, thing)
        failed = weakref.ref(future)
        del thing
        assert isinstance(future.exception(LONG), ValueError)
        # The frames of the exception hold the argument. They go with the future, without the collector.
        del future
        wait_until(lambda: reference() is None and failed() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_callback_that_fails_does_not_end_the_worker(
    executor: nearq.Executor, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    release = threading.Event()
    future = executor.submit(release.wait, LONG)

    def fail(_: object) -> None:
        raise kind("of the callback")

    future.add_done_callback(fail)
    release.set()
    assert future.result(LONG)
    assert executor.submit(abs, -1).result(LONG) == 1
    wait_until(lambda: "of the callback" in caplog.text)


def test_calls_may_submit_calls(executor: nearq.Executor) -> None:
    def tree(depth: int) -> int:
        if depth == 0:
            return 1
        return 1 + sum(future.result(LONG) for future in [executor.submit(int, 0), executor.submit(int, 0)])

    assert sum(executor.map(tree, [0, 1])) == 2
    assert executor.submit(executor.submit, abs, -3).result(LONG).result(LONG) == 3


def test_it_serves_an_event_loop(executor: nearq.Executor) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(executor, abs, -n) for n in range(100)))

    assert asyncio.run(main()) == list(range(100))


def test_deep_recursion_is_an_exception_and_no_crash(executor: nearq.Executor) -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]

    def deep() -> None:
        repr(nested)

    assert isinstance(executor.submit(deep).exception(LONG), RecursionError)

    def endless() -> None:
        endless()

    assert isinstance(executor.submit(endless).exception(LONG), RecursionError)


def test_many_threads_may_submit_at_once(executor: nearq.Executor) -> None:
    done: list[int] = []

    def submit(start: int) -> None:
        futures = [executor.submit(abs, -n) for n in range(start, start + 200)]
        done.extend(future.result(LONG) for future in futures)

    threads = [threading.Thread(target=submit, args=(start,)) for start in range(0, 800, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(800))


def test_waiting_and_shutting_down_at_once() -> None:
    for _ in range(50):
        executor = nearq.Executor(3)
        futures = [executor.submit(abs, -n) for n in range(10)]
        stopper = threading.Thread(target=executor.shutdown)
        stopper.start()
        assert not wait(futures, LONG).not_done
        stopper.join()


def test_any_callable_can_be_called(executor: nearq.Executor) -> None:
    class Odd:
        def __getattr__(self, name: str) -> object:
            raise ValueError(name)

        def __call__(self) -> int:
            return 5

    assert executor.submit(Odd()).result(LONG) == 5
    assert executor.submit(functools.partial(functools.partial(abs), -2)).result(LONG) == 2
    # The thousandth name and all after it.
    for number in range(1100):
        call = lambda: 1  # noqa: E731
        call.__qualname__ = f"call_{number}"
        assert executor.submit(call).result(LONG) == 1


def test_wrong_arguments_are_refused_with_what_is_allowed() -> None:
    for number in (0, -1, 1 << 20):
        with pytest.raises(ValueError, match="max_workers must be"):
            nearq.Executor(number)
    with pytest.raises(ValueError, match="give one of cpu, smt, cache_shard, cache, numa, system"):
        nearq.Executor(1, scope="llc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no such node; give"):
        nearq.Executor(1, home=4711)
    with pytest.raises(ValueError, match="there is no such node; give"):
        nearq.Executor(1, home=-1)
    with pytest.raises(ValueError, match='give the number of a node, "auto" or None'):
        nearq.Executor(1, home="best")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        nearq.Executor(1, initializer=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", nearq.SCOPES)
@pytest.mark.parametrize("strict", [False, True])
def test_calls_run_in_every_scope(scope: nearq.Scope, strict: bool) -> None:
    with nearq.Executor(2, scope=scope, strict=strict) as executor:
        assert list(executor.map(abs, range(50))) == list(range(50))


def test_calls_have_a_home() -> None:
    node = nearq.nodes()[0].id
    with nearq.Executor(2, home=node) as executor:
        assert executor.home == node
        assert executor.submit(abs, -1).result(LONG) == 1
    with nearq.Executor(2, home="auto") as executor:
        assert executor.home in [node.id for node in nearq.nodes()]
    assert nearq.Executor(2).home is None


def wait_until(condition: object) -> None:
    """Wait until it is true: the worker has a few instructions to go after a future has its result."""
    assert callable(condition)
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.001)
