"""A socket takes so many requests, and says when there will be room again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.local.rates import Bucket
from tests.driver.local.world import served

pytestmark = pytest.mark.anyio


def test_a_burst_is_taken_and_then_the_rate() -> None:
    """After the burst, one for each token that came back; a pause gives no more than a burst."""
    bucket = Bucket(per_s=10, burst=3)
    assert [bucket.take(0.0) for _ in range(4)] == [None, None, None, 1]
    assert [bucket.take(0.1), bucket.take(0.1)] == [None, 1]
    assert [bucket.take(100.0) for _ in range(4)] == [None, None, None, 1]
    slow = Bucket(per_s=0.1, burst=1)
    assert [slow.take(0.0), slow.take(0.0)] == [None, 10]


@given(steps=st.lists(st.floats(min_value=0, max_value=2), min_size=1, max_size=50))
def test_no_more_than_the_rate_is_taken(steps: list[float]) -> None:
    """Whenever they come: never more than the burst and what came back since; who waits as told gets one."""
    bucket, now, taken = Bucket(per_s=5, burst=4), 0.0, 0
    for step in steps:
        now += step
        wait_s = bucket.take(now)
        taken += wait_s is None
        assert taken <= 4 + now * 5 + 1e-6
        if wait_s is not None:
            now += wait_s
            assert bucket.take(now) is None
            taken += 1


async def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    """429 with Retry-After; the operator's socket has a rate of its own."""
    async with served(tmp_path, requests_per_s=0.01, requests_burst=2) as world:
        async with world.client("inspect.sock") as client:
            answers = [await client.get("/healthz") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[2].json()["code"] == "too_many_requests"
        assert 1 <= int(answers[2].headers["retry-after"]) <= 100
        async with world.client("operator.sock") as client:
            assert (await client.get("/healthz")).status_code == 200
