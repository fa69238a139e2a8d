"""The attacks of the lane: nothing breaks in the product as it is, and what breaks with a bug is seen."""

import pytest

from tests.faults.mutants import SEEDED
from tests.faults.mutants.attacks import Attack, cancellation, likeness, race
from tests.faults.mutants.bugs import toolless_digest

# those whose bugs leave nothing behind in the process of the tests


@pytest.mark.parametrize("attack", [cancellation, race, likeness])
def test_the_product_withstands_each_attack(attack: Attack) -> None:
    """An attack that breaks a sound product would notice every bug there is."""
    assert [attack(seed) for seed in range(5)] == [None] * 5


def test_an_attack_notices_its_bug() -> None:
    """Calls of two tools with the same arguments are taken for one."""
    with toolless_digest():
        found = [likeness(seed) for seed in range(5)]
    assert any(text is not None and "taken for the same" in text for text in found)


def test_each_bug_says_what_it_is() -> None:
    """Its docstring is what a reader of a report goes to."""
    assert all(seeded.bug.__doc__ for seeded in SEEDED.values())
