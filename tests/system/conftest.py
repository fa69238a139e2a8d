"""What the system tests share: the zygote, and the figures that a run ends with."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.system.campaign import Figures
from tests.system.zygote import Zygote

FIGURES: Final = pytest.StashKey[Figures]()
MEASURES: Final = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the figures."""
    config.stash[FIGURES] = Figures()
    config.stash[MEASURES] = []


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
