"""Goals are computed round by round, and the short form's gates hold what noise does not move."""

import pytest

from tests.bench.book import Book, Sample
from tests.bench.goals import GOALS, Gate, Goal
from tests.bench.report import gate_lines, verdicts


def book_of(**metrics: list[float]) -> Book:
    """A book with these values."""
    return Book({name.replace("_", "."): values for name, values in metrics.items()})


def test_a_ratio_is_one_of_values_of_the_same_round() -> None:
    """Where a machine is slow in one round, both are: the ratio of medians would be another one."""
    goal = Goal(title="ratio", must=0.5, aim=0.7, metrics=("ours.rate", "floor.rate"))
    sample = goal.measured(book_of(ours_rate=[10.0, 50.0, 90.0], floor_rate=[20.0, 100.0, 100.0]))
    assert sample is not None
    assert list(sample.values) == [0.5, 0.5, 0.9]
    assert sample.median == 0.5


def test_values_that_do_not_belong_to_the_same_rounds_are_never_compared() -> None:
    """Each round notes a value of each metric, or the book is wrong."""
    goal = Goal(title="ratio", must=0.5, aim=0.7, metrics=("ours.rate", "floor.rate"))
    with pytest.raises(ValueError, match="shorter"):
        goal.measured(book_of(ours_rate=[10.0, 50.0], floor_rate=[20.0]))


def test_what_a_run_did_not_measure_has_no_verdict() -> None:
    """The short form leaves out the foreign libraries."""
    found = verdicts(book_of(plans_bad=[0.0]))
    assert [verdict.goal.metrics for verdict in found] == [("plans.bad",)]


@pytest.mark.parametrize(
    ("gate", "at_most", "passes", "fails"),
    [
        (Gate.EXACT, False, 0.5, 0.49),
        (Gate.EXACT, True, 0.5, 0.51),
        (Gate.RATE, False, 0.17, 0.16),
        (Gate.RATE, True, 1.5, 1.51),
        (Gate.FLAT, True, 0.75, 0.76),
    ],
)
def test_a_gate_is_as_wide_as_the_noise_of_what_it_holds(
    gate: Gate, at_most: bool, passes: float, fails: float
) -> None:
    """Counts are held to what they must be; rates to a third of it, or three times."""
    goal = Goal(title="goal", must=0.5, aim=0.7, metrics=("x",), at_most=at_most, gate=gate)
    assert goal.passes_gate(passes)
    assert not goal.passes_gate(fails)


@pytest.mark.parametrize(
    ("at_most", "must", "passes", "fails"), [(False, 0.5, 0.101, 0.099), (True, 0.2, 0.89, 0.91)]
)
def test_what_no_commit_has_reached_is_held_to_what_one_has(
    at_most: bool, must: float, passes: float, fails: float
) -> None:
    """A goal on the way is no licence to go back; and what it must be stays what it is."""
    goal = Goal(title="goal", must=must, aim=must, so_far=0.3, metrics=("x",), at_most=at_most)
    assert goal.passes_gate(passes)
    assert not goal.passes_gate(fails)
    assert goal.word(passes) == "missed"


def test_no_goal_is_held_to_more_than_it_must_be() -> None:
    """What has been reached so far stands for a goal only where that is less than it must be."""
    for goal in GOALS:
        assert goal.so_far is None or not goal.meets(goal.so_far, goal.must), goal.title


def test_a_gate_that_is_missed_is_told_from_a_goal_that_is() -> None:
    """One reads which gates fail the run, and which goals are missed within the margin of their gates."""
    book = Book(
        {
            "noop.cpu@64": [30.0],
            "echo.cpu": [1.0],
            "noop.rate@64": [300.0],
            "bare.rate@64": [1_000.0],
            "plans.bad": [0.0],
        }
    )
    assert list(gate_lines(verdicts(book))) == [
        "gates: 2 held, 1 missed",
        "  gate missed: CPU a call in the daemon, in echoes' client CPU, 64 in flight: 30 of ≤ 15",
        "  goal missed, gate held: end to end, no-op provider, 64 in flight, of (c): 0.3 of ≥ 0.5",
    ]


def test_each_goal_aims_at_no_less_than_it_must() -> None:
    """The two limits of a goal are in order, and no title stands twice: the history goes by them."""
    for goal in GOALS:
        assert goal.meets(goal.aim, goal.must), goal.title
    assert len({goal.title for goal in GOALS}) == len(GOALS)


def test_the_spread_is_the_middle_distance_from_the_median() -> None:
    """One wild round does not make a quiet run a noisy one."""
    assert Sample([9.0, 10.0, 10.0, 11.0, 1000.0]).spread == pytest.approx(0.1)
    assert Sample([5.0, 5.0, 5.0]).spread == 0.0
