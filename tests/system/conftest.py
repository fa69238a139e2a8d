"""What the system tests share: the zygote, and the figures that a run ends with."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.report import add
from tests.system.campaign import Figures
from tests.system.siege import Toll
from tests.system.zygote import Zygote

FIGURES: Final = pytest.StashKey[Figures]()
TOLL: Final = pytest.StashKey[Toll]()
KILL_TESTS: Final = "kill tests"
HOSTILE: Final = "hostile servers"


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the figures."""
    config.stash[FIGURES] = Figures()
    config.stash[TOLL] = Toll()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report what the kill tests and the sieges counted, whether they passed or not."""
    figures = session.config.stash[FIGURES]
    if figures.kills:
        add(session.config, KILL_TESTS, str(figures))
    toll = session.config.stash[TOLL]
    if toll.sieges:
        add(session.config, HOSTILE, str(toll))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The warm process that all lives are forked from."""
    warm = Zygote()
    yield warm
    warm.close()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """What the kill tests count."""
    return request.config.stash[FIGURES]


@pytest.fixture
def toll(request: pytest.FixtureRequest) -> Toll:
    """What the sieges count."""
    return request.config.stash[TOLL]
