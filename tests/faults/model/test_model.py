"""The model lane itself: its machines hold, a slice can be played again, each control is noticed."""

import pytest

from tests.faults.model import MACHINES, NAME, play, run
from tests.faults.model.bench import prompt_connections
from tests.faults.model.counting import SEEN


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
