"""What every test shares: asyncio as the only backend, a loop that must not block, one Hypothesis profile.

The tests are packages that mirror the tree (`tests.store`, `tests.driver.core`, ...), so that one may import
a model or a fake from another.
"""

import signal
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings

from driver.log import configure
from tests.lanes import Lanes
from tests.report import Reporter, add


def pytest_configure(config: pytest.Config) -> None:
    """Let every process gather what its tests report, and keep together what belongs together."""
    config.pluginmanager.register(Reporter())
    config.pluginmanager.register(Lanes())
    _hear_interrupts()


def _hear_interrupts() -> None:
    """Take back that a shell, which starts us in the background, lets us and ours ignore SIGINT.

    Tests send it to processes of theirs.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


settings.register_profile("effectd", deadline=None, print_blob=True)
settings.load_profile("effectd")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The one backend that the daemon runs on."""
    return "asyncio"


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line of a measuring test to the end of the report."""
    return partial(add, request.config, "measures")


@pytest.fixture(autouse=True)
def log_as_the_daemon_does() -> None:
    """Log lines are those of the daemon, on the standard error that the test captures."""
    configure("debug", "json")


@pytest.fixture(scope="session", autouse=True)
def loop_must_not_block() -> Iterator[BlockBuster]:
    """A call of ours that blocks the event loop raises `BlockingError`, in whatever test it happens."""
    with blockbuster_ctx(scanned_modules=["driver", "store", "supervisor"]) as blockbuster:
        yield blockbuster
