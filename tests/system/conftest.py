"""What the system tests share: the zygote, and the figures that a run ends with."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.system.campaign import Figures
from tests.system.crowd import Crowd
from tests.system.zygote import Zygote

FIGURES: Final = pytest.StashKey[Figures]()
CROWD: Final = pytest.StashKey[Crowd]()
MEASURES: Final = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the figures."""
    config.stash[FIGURES] = Figures()
    config.stash[MEASURES] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin to make what takes long, where a test wants it."""
    if any("crowd" in getattr(item, "fixturenames", ()) for item in session.items):
        session.config.stash[CROWD] = Crowd()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Clean up, even where the test that wanted it never ran."""
    if CROWD in session.config.stash:
        session.config.stash[CROWD].close()


@pytest.fixture
def crowd(request: pytest.FixtureRequest) -> Crowd:
    """A journal with many operations, in the making since the tests began."""
    return request.config.stash[CROWD]


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
def measures(request: pytest.FixtureRequest) -> list[str]:
    """Lines that a measuring test adds to the end of the report."""
    return request.config.stash[MEASURES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures, whether the tests passed or not."""
    figures, measures = config.stash[FIGURES], config.stash[MEASURES]
    if figures.kills:
        terminalreporter.section("kill tests")
        terminalreporter.write_line(str(figures))
    if measures:
        terminalreporter.section("measures")
        for line in measures:
            terminalreporter.write_line(line)
