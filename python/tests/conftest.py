"""What the tests share."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import nearq

# Longer than anything takes on a busy machine: a test that waits for an event has failed after this.
LONG = 60.0


@pytest.fixture
def executor() -> Iterator[nearq.Executor]:
    """Return an executor of four workers; more than the machine may have CPUs."""
    with nearq.Executor(4, name="tests") as made:
        yield made


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return what runs a program in an interpreter of its own, and waits for its end."""

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)

    return run


class Peak:
    """Counts how many threads are in a block at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.now -= 1
