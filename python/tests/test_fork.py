"""Executors across forks."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable

import nearq

from .conftest import LONG


def in_child(function: Callable[[], object]) -> int:
    """Run a function in the child of a fork; return 0 if it returned true."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if function() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_an_executor_works_in_the_child_and_goes_on_in_the_parent() -> None:
    release = threading.Event()
    ran: list[int] = []

    def note() -> bool:
        ran.append(os.getpid())
        return True

    with nearq.Executor(2) as executor:
        futures = [executor.submit(release.wait, LONG) for _ in range(2)]
        futures += [executor.submit(note) for _ in range(5)]

        def use() -> bool:
            # All workers of the parent are in calls; those, and what waits, stay the parent's.
            child = os.getpid()
            pids = list(executor.map(lambda _: os.getpid(), range(20)))
            executor.shutdown()
            return pids == [child] * 20 and not ran

        assert in_child(use) == 0
        assert in_child(use) == 0
        release.set()
        assert all(future.result(LONG) for future in futures)
    assert ran == [os.getpid()] * 5


def test_no_more_calls_run_at_once_in_the_child() -> None:
    release = threading.Event()
    with nearq.Executor(2) as executor:
        held = [executor.submit(release.wait, LONG) for _ in range(2)]

        def use() -> bool:
            barrier = threading.Barrier(2)
            return sorted(f.result(LONG) for f in [executor.submit(barrier.wait, LONG) for _ in range(2)]) == [0, 1]

        assert in_child(use) == 0
        release.set()
        assert all(future.result(LONG) for future in held)


def test_a_call_may_fork() -> None:
    with nearq.Executor(2) as executor:

        def fork() -> int:
            return in_child(lambda: executor.submit(abs, -5).result(LONG) == 5)

        assert [executor.submit(fork).result(LONG) for _ in range(5)] == [0] * 5
        assert executor.submit(abs, -1).result(LONG) == 1


def test_forks_beside_calls_do_not_hang() -> None:
    stop = threading.Event()
    with nearq.Executor(4) as executor:

        def flood() -> None:
            while not stop.is_set():
                executor.submit(abs, -1).result(LONG)

        threads = [threading.Thread(target=flood) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                assert in_child(lambda: executor.submit(abs, -5).result(LONG) == 5) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def square(number: int) -> int:
    with nearq.Executor(2) as executor:
        return executor.submit(pow, number, 2).result(LONG)


def test_processes_of_every_start_method_have_executors() -> None:
    with nearq.Executor(2) as executor:
        assert executor.submit(abs, -1).result(LONG) == 1
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]


def test_a_child_that_ends_as_usual_runs_what_it_has_submitted() -> None:
    reader, writer = os.pipe()
    release, begun = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return release.wait(LONG)

    with nearq.Executor(2) as executor:
        # A worker is in the interpreter when the process forks. The child must not wait for it when it ends.
        held = executor.submit(hold)
        assert begun.wait(LONG)
        process = multiprocessing.get_context("fork").Process(target=executor.submit, args=(os.write, writer, b"written"))
        process.start()
        process.join(LONG / 2)
        assert process.exitcode == 0
        assert os.read(reader, 100) == b"written"
        release.set()
        assert held.result(LONG)
    os.close(reader)
    os.close(writer)
