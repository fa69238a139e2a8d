"""Keeps out of the daemon's memory what it never uses. To be imported before anything that logs.

Part of `driver.cli`; imports nothing of ours. structlog imports rich, and with it pygments, for tracebacks of
a kind that the daemon's log does not have: megabytes of the hundred that an idle daemon may take. Other
commands draw their tables with rich, and have no use for this.
"""

import sys
from importlib import import_module
from typing import cast


def _import_without(name: str, unused: str) -> None:
    """Import a module that can do without another one, which stays importable for whoever asks later."""
    if name in sys.modules or unused in sys.modules:
        return
    modules = cast("dict[str, object]", sys.modules)
    modules[unused] = None  # how an import is told that there is none
    try:
        import_module(name)
    finally:
        del modules[unused]


_import_without("structlog", unused="rich")
