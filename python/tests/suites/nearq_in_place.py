"""Puts `nearq.Executor` in the place of `ThreadPoolExecutor`, in each interpreter of an environment: for tests of other projects.

`suites.py` has the environment import this before anything else.
"""

import concurrent.futures
import concurrent.futures.thread

import nearq


class ThreadPoolExecutor(nearq.Executor):
    """Tests start interpreters that import the class by its name."""

    def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=()):
        super().__init__(max_workers, thread_name_prefix=thread_name_prefix, initializer=initializer, initargs=initargs)


concurrent.futures.thread.ThreadPoolExecutor = concurrent.futures.ThreadPoolExecutor = ThreadPoolExecutor
