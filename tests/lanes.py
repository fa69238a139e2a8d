"""How the tests are shared out where several processes run them (pytest-xdist, `--dist loadgroup`).

The tests of one module of `tests/system` stay in one process: they share a zygote, and what one of them
counts another looks at. So do all tests of the command provider, which look at the machine's cgroups. All
others go one by one. The mark that pytest-xdist has for this, `xdist_group`,
changes the names of tests, which pytest since 9.2 does not let it do.
"""

import pytest

# the library is not marked as typed
from xdist.remote import Producer  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]

TOGETHER = "tests/system/"
"""Where the tests of a module stay together."""
ALONE = "tests/driver/providers/command/"
"""Where all tests stay together."""


class _Lanes(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ALONE):
            return ALONE
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid


class Lanes:
    """The plugin, for the process that shares out."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> object:
        """Return our way of sharing out, unless another one was asked for."""
        return _Lanes(config, log) if config.option.dist == "loadgroup" else None
