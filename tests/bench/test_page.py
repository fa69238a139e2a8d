"""The page says what was measured, on what kind of machine, and nothing of whose machine it is."""

import platform
from pathlib import Path
from typing import Final

from tests.bench.book import Book
from tests.bench.history import Entry
from tests.bench.machine import Conditions, conditions, description
from tests.bench.page import text_of
from tests.bench.report import verdicts

BOOK: Final = Book(
    {
        "journal.rate@64": [900.0, 800.0, 700.0],
        "floor.rate@64": [1_000.0, 1_000.0, 1_000.0],
        "plans.bad": [0.0],
    }
)
AROUND: Final = Conditions(busy=50.0, stolen=1.0, total=100.0, load=1.5)


def page() -> str:
    """The page of a small run."""
    entry = Entry(
        commit="aaaa", changed=False, machine=description(Path(__file__).parent), noise=0.1, goals={}
    )
    return text_of(BOOK, verdicts(BOOK), AROUND, entry)


def test_each_goal_that_was_measured_has_its_row() -> None:
    """With its median, its range and its spread, both limits, and what it reaches."""
    assert (
        "| journal alone, 64 callers, of (b) | 0.8 | 0.7 .. 0.9 | 12% | ≥ 0.7 | ≥ 0.85 | must |"
        in page().splitlines()
    )


def test_the_page_says_how_noisy_the_run_was() -> None:
    """Rates that moved, processors that were busy, time that was stolen, and the load."""
    assert "rates moved by 10%" in page()
    assert "processors busy 50% of the time, 1.0% stolen, load up to 1.5" in page()


def test_the_page_names_no_machine() -> None:
    """Cores, kernel and the kind of file system tell enough: no host, no folder."""
    assert platform.node() not in description(Path(__file__).parent)
    assert str(Path.cwd()) not in page()


def test_conditions_are_told_of_a_stretch_of_time() -> None:
    """What the kernel counted since it began says nothing of a run."""
    before = conditions()
    between = before.until(conditions())
    assert between.total < before.total
