"""Where exactly it dies decides what may be said: one call, one kill, one table."""

import pytest

from tests.system.audit import must_hold
from tests.system.campaign import KILLED
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill]


@pytest.mark.parametrize(
    ("kill_at", "kind", "effects"),
    [
        ("intake.committed", "operation.succeeded", 1),
        ("dispatch.prepared", "operation.succeeded", 1),
        ("dispatch.intent_committed", "operation.unknown", 0),
        ("dispatch.before_call", "operation.unknown", 0),
        ("dispatch.answered", "operation.unknown", 1),
        ("dispatch.outcome_committed", "operation.succeeded", 1),
    ],
)
async def test_what_a_first_call_ends_as(zygote: Zygote, kill_at: str, kind: str, effects: int) -> None:
    """Before the intent it simply runs later; after it nobody knows; after the outcome it is known."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await plane.give(call("cmd-1", n=1))
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        assert (await plane.receipt_of("cmd-1"))["kind"] == kind
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == effects


@pytest.mark.parametrize(
    ("kill_at", "kind", "effects"),
    [
        # acceptance and intent share a commit once the provider runs
        ("intake.committed:2", "operation.unknown", 0),
        ("dispatch.answered:2", "operation.unknown", 1),
        ("dispatch.outcome_committed:2", "operation.succeeded", 1),
    ],
)
async def test_what_a_second_call_ends_as(zygote: Zygote, kill_at: str, kind: str, effects: int) -> None:
    """With its provider running a call is accepted and intended in one commit, and honest all the same."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start(kill_at=kill_at)
        await plane.give(call("warm-up", n=0))
        await plane.answered()
        await plane.give(call("cmd-1", n=1))
        assert await life.exit_code() == KILLED
        life = made.start()
        assert (await plane.receipt_of("cmd-1"))["kind"] == kind
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1 + effects
