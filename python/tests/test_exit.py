"""The interpreter ends while workers exist."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from .conftest import LONG

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_what_was_submitted_runs_before_the_exit(python: Run) -> None:
    ended = python(
        "import nearq, time\n"
        "executor = nearq.Executor(1)\n"
        "executor.submit(time.sleep, 0.2)\n"
        "executor.submit(print, 'apple')\n"
        "print('main ends')\n"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "main ends\napple\n", "")


def test_what_a_dropped_executor_has_runs_before_the_exit(python: Run) -> None:
    ended = python("import nearq, time; nearq.Executor(1).submit(lambda: (time.sleep(0.2), print('apple')))")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "apple\n", "")


def test_nothing_is_accepted_after_that(python: Run) -> None:
    ended = python(
        "import atexit, nearq, threading, time\n"
        "executor = nearq.Executor(1)\n"
        "executor.submit(abs, -1).result()\n"
        "def late():\n"
        "    try:\n"
        "        executor.submit(print, 'late')\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "atexit.register(late)\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "cannot schedule new futures after interpreter shutdown\n"


def test_calls_that_submit_more_are_refused_at_the_exit_too(python: Run) -> None:
    ended = python(
        "import nearq, time\n"
        "executor = nearq.Executor(1)\n"
        "def again():\n"
        "    time.sleep(0.2)\n"
        "    try:\n"
        "        executor.submit(again)\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "executor.submit(again)\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "cannot schedule new futures after interpreter shutdown\n"


@pytest.mark.many_processes
def test_exits_beside_threads_that_submit_do_not_crash(python: Run) -> None:
    # Daemon threads submit until the interpreter stops them, and workers end calls meanwhile.
    program = (
        "import nearq, sys, threading, time\n"
        "executor = nearq.Executor(4)\n"
        "def flood():\n"
        "    try:\n"
        "        while True:\n"
        "            executor.submit(abs, -1)\n"
        "            time.sleep(0)\n"
        "    except RuntimeError:\n"
        "        pass\n"
        "for _ in range(3):\n"
        "    threading.Thread(target=flood, daemon=True).start()\n"
        "time.sleep(float(sys.argv[1]))\n"
    )
    for number in range(12):
        ended = python(program, str(0.002 * number))
        assert (ended.returncode, ended.stderr) == (0, "")


def test_an_exception_in_main_does_not_lose_calls(python: Run) -> None:
    ended = python("import nearq, time\nnearq.Executor(1).submit(lambda: (time.sleep(0.1), print('apple')))\nraise SystemExit(3)\n")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "apple\n", "")


def test_ctrl_c_at_the_exit_forgets_what_has_not_begun() -> None:
    program = (
        "import nearq, time\n"
        "executor = nearq.Executor(1)\n"
        "executor.submit(lambda: (print('begun', flush=True), time.sleep(1), print('ended', flush=True)))\n"
        "for _ in range(100):\n"
        "    executor.submit(lambda: (time.sleep(1), print('another', flush=True)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        # It waits in its exit by then, or soon.
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LONG)
    assert output == "ended\n"
    assert "KeyboardInterrupt" in errors
    assert "Fatal" not in errors


def test_ctrl_c_interrupts_a_shutdown_that_waits(python: Run) -> None:
    ended = python(
        "import nearq, os, signal, threading, time\n"
        "executor = nearq.Executor(1)\n"
        "executor.submit(time.sleep, 1)\n"
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "begin = time.monotonic()\n"
        "try:\n"
        "    executor.shutdown()\n"
        "except KeyboardInterrupt:\n"
        "    print(time.monotonic() - begin < 0.9)\n"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def test_workers_that_end_and_begin_do_not_disturb_the_exit(python: Run) -> None:
    # Executors of many scopes have workers of many pools; some are still beginning when the interpreter ends.
    program = (
        "import nearq\n"
        "executors = [nearq.Executor(3, scope=scope, strict=strict) for scope in nearq.SCOPES for strict in (False, True)]\n"
        "for executor in executors:\n"
        "    for _ in range(5):\n"
        "        executor.submit(abs, -1)\n"
    )
    for _ in range(5):
        ended = python(program)
        assert (ended.returncode, ended.stderr) == (0, "")
