"""Work near its data: executors whose threads are nearq's workers, what the machine consists of, and home nodes for processes and threads.

>>> import nearq
>>> with nearq.Executor(max_workers=4) as executor:
...     executor.submit(pow, 2, 8).result()
256

The command `nearq`, which this package brings too, inspects and tunes programs while they run. Linux only.
"""

from nearq._executor import Executor
from nearq._homes import AtHome, Home, Homes, at_home, home_initializer
from nearq._topology import SCOPES, Node, Pod, Scope, cpus, nodes, nodes_near, pods

__all__ = [
    "SCOPES",
    "AtHome",
    "Executor",
    "Home",
    "Homes",
    "Node",
    "Pod",
    "Scope",
    "at_home",
    "cpus",
    "home_initializer",
    "nodes",
    "nodes_near",
    "pods",
]
__version__ = "0.1.0"
