"""The examples of the documentation run: python/README.md and docs/python.md."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import LONG

ROOT = Path(__file__).parents[2]
PAGES = ["python/README.md", "docs/python.md"]


@dataclass(frozen=True)
class Example:
    """A block of Python in a page."""

    page: str
    line: int
    text: str
    is_run: bool


def examples() -> list[Example]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text()
        for block in re.finditer(r"^```python(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 2
            found.append(Example(page, line, block[2], block[1] != " not run"))
    return found


def test_pages_say_which_examples_are_not_run() -> None:
    by_page = {page: [example.is_run for example in examples() if example.page == page] for page in PAGES}
    assert by_page["python/README.md"] == [True] * 2
    assert by_page["docs/python.md"].count(False) == (ROOT / "docs/python.md").read_text().count("These lines were not run.")


@pytest.mark.many_processes
@pytest.mark.parametrize(
    "example", [example for example in examples() if example.is_run], ids=lambda example: f"{Path(example.page).stem}:{example.line}"
)
def test_example(example: Example, tmp_path: Path) -> None:
    for module in ("joblib", "dask", "distributed"):
        if re.search(rf"^(import|from) {module}\b", example.text, re.MULTILINE) and importlib.util.find_spec(module) is None:
            pytest.skip(f"there is no {module}; to have it: pip install {module}")
    # In a file, as the start method `spawn` needs it.
    program = tmp_path / "example.py"
    program.write_text(example.text)
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(program)], capture_output=True, text=True, timeout=2 * LONG, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
