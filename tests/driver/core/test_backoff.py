"""How long the link waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.core.backoff import CEILING_S, FLOOR_S, ceiling_delay_s, delay_s


@given(failures=st.integers(min_value=1, max_value=10**9), chance=st.floats(0, 1, exclude_max=True))
def test_every_wait_is_between_floor_and_ceiling(failures: int, chance: float) -> None:
    """However often it failed, the wait is 0.2 s at least and 30 s at most."""
    assert FLOOR_S <= delay_s(failures, chance) <= CEILING_S
    assert CEILING_S / 2 <= ceiling_delay_s(chance) <= CEILING_S


@pytest.mark.parametrize(("failures", "bound"), [(1, 0.4), (2, 0.8), (3, 1.6), (8, 30.0), (100, 30.0)])
def test_the_bound_doubles(failures: int, bound: float) -> None:
    """Full jitter: anything from the floor to a bound that doubles with every failure, up to the ceiling."""
    assert delay_s(failures, 0.0) == FLOOR_S
    assert delay_s(failures, 0.999_999) == pytest.approx(bound, rel=1e-4)
