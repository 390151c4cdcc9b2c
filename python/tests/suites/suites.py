"""Runs tests of other projects with `nearq.Executor` in the place of `ThreadPoolExecutor`: suites.py PACKAGE [SUITE...].

PACKAGE is the folder that has the package nearq. The suites are `cpython`, the interpreter's own tests of executors; `asyncio`, its tests
of event loops, which run blocking calls in an executor; and `dask`, the tests of its scheduler for threads, whose executor derives from
`ThreadPoolExecutor`. No test is copied or changed.

The tests run in an environment that imports `nearq_in_place` first, and so do the interpreters that they start. What does not apply to an
executor that shares its threads is named below, with the reason. A suite that is not installed is skipped, and a line says so.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent

THREADS = "it reads `_threads`: an executor of nearq has no threads of its own"
NOT_FOR_US = {
    # CPython
    "test_saturation": THREADS,
    "test_idle_thread_reuse": THREADS,
    "test_threads_terminate": THREADS,
    "test_context_manager_shutdown": THREADS,
    "test_del_shutdown": THREADS,
    "test_shutdown_no_wait": THREADS,
    "test_thread_names_assigned": THREADS,
    "test_thread_names_default": THREADS,
    "test_cancel_futures": "it expects that a call has begun as soon as others were submitted: nothing promises that",
    # dask
    "test_pool_kwarg": "it counts threads: an executor of nearq limits how many calls run at once, not on how many threads",
}


def skip(what: str, why: str, how: str) -> None:
    print(f"skipped: {what}: {why}; to have it: {how}")


class Environment:
    """A new environment, in which the tests run; it has the packages of the interpreter that runs this program."""

    def __init__(self, folder: Path, package: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        own = sysconfig.get_path("purelib")
        (site / "nearq_in_place.pth").write_text(f"{package}\n{HERE}\n{own}\nimport nearq_in_place\n")
        check = "import concurrent.futures as f, nearq; assert issubclass(f.ThreadPoolExecutor, nearq.Executor)"
        subprocess.run([self.python, "-I", "-c", check], check=True)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run the interpreter; return its exit status and what it printed."""
        ended = subprocess.run(
            [self.python, "-X", "faulthandler", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=1200,
            check=False,
        )
        return ended.returncode, ended.stdout


def unittests(environment: Environment, suite: str, modules: list[str], pattern: str) -> bool:
    """Run tests of the interpreter whose names match, each module in a process of its own."""
    good, ran = True, 0
    for module in modules:
        if importlib.util.find_spec(module) is None:
            continue
        program = (
            "import re, sys, unittest\n"
            "pattern, left_out = re.compile(sys.argv[2]), set(sys.argv[3:])\n"
            "def each(suite):\n"
            "    for test in suite:\n"
            "        if isinstance(test, unittest.TestSuite):\n"
            "            yield from each(test)\n"
            "        elif not hasattr(test, '_testMethodName') or pattern.search(test.id()) and test._testMethodName not in left_out:\n"
            "            yield test\n"
            "module = __import__(sys.argv[1], fromlist=['_'])\n"
            "tests = list(each(unittest.defaultTestLoader.loadTestsFromModule(module)))\n"
            "result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(tests))\n"
            "sys.exit(not result.wasSuccessful())\n"
        )
        status, output = environment.run("-c", program, module, pattern, *NOT_FOR_US)
        found = re.search(r"^Ran (\d+) tests?", output, re.MULTILINE)
        count = int(found[1]) if found else 0
        ran += count
        if status != 0 or found is None:
            print(output)
            print(f"{suite}: {module} has failed, with {status}")
            good = False
    if ran == 0 and good:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        skip(f"{suite}'s own tests with {version}", f"{sys.prefix} does not have them", f"apt-get install libpython{version}-testsuite")
        return True
    print(f"{suite}: {ran} tests")
    return good


def has_module(name: str) -> bool:
    """Whether a module can be found. Packages of interpreters leave out all tests, or some."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # There is no package that could have it.
        return False


def cpython(environment: Environment) -> bool:
    """Run the interpreter's tests of executors of threads: those of one module, or of a package with several."""
    names = ("thread_pool", "shutdown", "wait", "as_completed", "init")
    modules = ["test.test_concurrent_futures"]
    if has_module("test.test_concurrent_futures.executor"):
        modules = [f"test.test_concurrent_futures.test_{name}" for name in names]
    elif not has_module(modules[0]):
        modules = []
    return unittests(environment, "CPython", modules, r"\.ThreadPool")


def asyncio(environment: Environment) -> bool:
    """Run the interpreter's tests of event loops that use executors."""
    names = ("test_threads", "test_runners", "test_futures", "test_base_events", "test_events")
    modules = [f"test.test_asyncio.{name}" for name in names] if has_module("test.test_asyncio") else []
    return unittests(environment, "asyncio", modules, "")


def by_pytest(environment: Environment, suite: str, *arguments: str) -> bool:
    """Run tests of a package that is installed with them."""
    if not has_module(suite):
        skip(f"{suite}'s own tests", f"there is no {suite}", f"pip install {suite} pytest")
        return True
    left_out = " and ".join(f"not {name}" for name in NOT_FOR_US)
    status, output = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", left_out, *arguments)
    lines = output.splitlines()
    print(f"{suite}: {lines[-1] if lines else 'nothing'}")
    if status != 0:
        print(output)
    return status == 0


def dask(environment: Environment) -> bool:
    """Run dask's tests of its scheduler for threads, whose executor derives from ThreadPoolExecutor."""
    return by_pytest(environment, "dask", "--pyargs", "dask.tests.test_threaded", "dask.tests.test_local")


SUITES = {"cpython": cpython, "asyncio": asyncio, "dask": dask}


def main() -> None:
    package, *names = sys.argv[1:]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(Path(folder) / "environment", Path(package).resolve())
        for name in names or SUITES:
            good &= SUITES[name](environment)
    sys.exit(not good)


if __name__ == "__main__":
    main()
