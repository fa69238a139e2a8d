"""The model lane itself: its machines hold, a slice can be played again, each control is noticed."""

from collections.abc import Iterator

import pytest

import store.consequences as consequences  # noqa: PLR0402 - for pyright, `store` alone would be another folder
from store.events import Draft
from store.head import Ledger
from store.records import OperationId
from tests.faults.model import MACHINES, NAME, play, run
from tests.faults.model.bench import prompt_connections
from tests.faults.model.counting import SEEN
from tests.faults.simulation.controls import swapped


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_a_slice_is_the_same_each_time(machine: str) -> None:
    """A machine, a seed and a number are the same examples each time they are played."""
    with prompt_connections():
        SEEN.clear()
        play(machine, 3, 0)
        once = dict(SEEN)
        SEEN.clear()
        play(machine, 3, 0)
    assert once == dict(SEEN)
    assert once


def test_a_run_counts_its_examples_and_notices_its_controls() -> None:
    """Each machine has its turn, each mechanism that is taken away is missed, and nothing else is."""
    report = run(1, 0.0, 150)
    assert report.name == NAME
    assert report.broken == []
    assert report.points >= 150
    assert [name for name in report.missed if name.startswith("caught: ")] == []


def test_a_none_that_outlives_what_it_rested_on_is_noticed() -> None:
    """Nobody looks at a parent again once a later call names it: its machine has something to say."""

    def nothing(ledger: Ledger, parent: OperationId) -> Iterator[Draft]:
        del ledger, parent
        return iter(())

    def some() -> None:
        for number in range(10):
            play("delegation", 1, number)

    broken = pytest.raises(AssertionError, match="is none, and its children are")
    with prompt_connections(), swapped(consequences, "of_call", nothing), broken:
        some()
