"""The command `nearq` sees executors. It is found on the path, or named by NEARQ_COMMAND."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

import nearq

from .conftest import LONG

COMMAND = os.environ.get("NEARQ_COMMAND") or shutil.which("nearq")

pytestmark = pytest.mark.skipif(
    COMMAND is None, reason="there is no command nearq on the path; to have it: cargo build -p nearq-cli, and set NEARQ_COMMAND"
)


def ask(*arguments: str) -> str:
    """Return what the command prints."""
    assert COMMAND is not None
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=True, timeout=LONG).stdout


def patiently(release: threading.Event) -> None:
    release.wait(LONG)


def test_executors_and_their_calls_are_shown() -> None:
    release = threading.Event()
    with nearq.Executor(1, name="inspected") as executor:
        for _ in range(3):
            executor.submit(patiently, release)
        try:
            pid = str(os.getpid())
            end = time.monotonic() + LONG
            while "patiently" not in (dump := ask("dump", pid)):
                assert time.monotonic() < end, dump
                time.sleep(0.01)
            assert "inspected" in dump
            assert pid in ask("ps")
        finally:
            release.set()


def test_no_more_calls_run_at_once_if_the_limit_of_the_queue_is_raised() -> None:
    # On several nodes the queue's own limit is higher than the executor's too.
    program = (
        "import nearq, sys, threading, time\n"
        "executor = nearq.Executor(2, name='limited')\n"
        "lock, now, most = threading.Lock(), 0, 0\n"
        "def work():\n"
        "    global now, most\n"
        "    with lock:\n"
        "        now += 1\n"
        "        most = max(most, now)\n"
        "    time.sleep(0.02)\n"
        "    with lock:\n"
        "        now -= 1\n"
        "executor.submit(work).result()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "for _ in range(40):\n"
        "    executor.submit(work)\n"
        "executor.shutdown()\n"
        "print(most)\n"
    )
    environment = os.environ | {"NEARQ_CONTROL": "full"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        ask("set", str(process.pid), "limited", "max_active=40")
        assert process.communicate("\n", timeout=LONG)[0] == "2\n"


def test_settings_are_read_only_unless_the_user_allows_more() -> None:
    program = (
        "import nearq, sys; e = nearq.Executor(1, name='tuned'); e.submit(abs, -1).result(); print('ready', flush=True); sys.stdin.read()"
    )
    for access, allowed in (("", False), ("full", True)):
        environment = {key: value for key, value in os.environ.items() if key != "NEARQ_CONTROL"}
        if access:
            environment["NEARQ_CONTROL"] = access
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            assert COMMAND is not None
            command = [COMMAND, "set", str(process.pid), "tuned", "affinity_scope=cache"]
            changed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
            # Root may always change it.
            assert (changed.returncode == 0) == (allowed or os.getuid() == 0), changed.stderr
            process.communicate(timeout=LONG)
