"""`retry = "same-key"` on real processes: whatever dies, a provider that deduplicates has one effect."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.system.audit import must_hold
from tests.system.campaign import KILLED
from tests.system.plane import call, scripted_plane
from tests.system.sandbox import SERVER, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

CONTRACT: Final[Mapping[str, Any]] = {
    "idempotent": True,
    "dedupe_horizon_s": 3600,
    "retry": "same-key",
    "retry_attempts": 5,
    "retry_backoff_s": 0.01,
}


def deduplicating(made: Sandbox, **contract: object) -> None:
    """Let the counting server know the keys that it has seen, and the contract say so."""
    server = [sys.executable, "-I", "-S", str(SERVER), str(made.ledger), "--deduplicate"]
    made.configure(
        providers__counter={"argv": server},
        providers__counter__tools__count={**CONTRACT, **contract},
        providers__counter__tools__slow={**CONTRACT, **contract},
    )


@pytest.mark.parametrize(
    "kill_at",
    [
        "intake.committed",
        "dispatch.prepared",
        "dispatch.intent_committed",
        "dispatch.before_call",
        "dispatch.answered",
        "dispatch.outcome_committed",
        "journal.before_commit:3",
        "journal.after_commit:3",
    ],
)
async def test_a_kill_costs_an_attempt_and_never_a_second_effect(zygote: Zygote, kill_at: str) -> None:
    """Killed in mid-call, and once more while it recovers, the daemon tries again with the same key."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        deduplicating(made)
        await plane.give(call("cmd-1", n=1))
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        assert await made.start(kill_at="recovery.page").exit_code() == KILLED
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1


async def test_a_kill_in_every_attempt_ends_unknown(zygote: Zygote) -> None:
    """Attempts are bounded across lives: a crash loop cannot call for ever."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        deduplicating(made, retry_attempts=3)
        await plane.give(call("cmd-1", n=1))
        for _ in range(3):
            assert await made.start(kill_at="dispatch.answered").exit_code() == KILLED
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "crash_window")
        assert receipt["data"]["attempts"] == 3
        assert await life.stop() == 0
        await must_hold(made)
        started = [event for event in plane.history.events() if event["kind"] == "operation.started"]
        assert [event["data"]["attempt"] for event in started] == [1, 2, 3]
        assert len({event["data"]["idempotency_key"] for event in started}) == 1


async def test_a_deadline_is_followed_by_the_answer_of_the_next_attempt(zygote: Zygote) -> None:
    """A call that hangs after its effect is asked for again, and the provider knows that it did it."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        deduplicating(made, execution_s=2.0)
        gate = made.root / "gate"
        life = made.start()
        await plane.give(call("cmd-1", "counter/slow", until=str(gate)))
        await made.events_until(lambda event: event["kind"] == "operation.attempt_ended")
        gate.touch()
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)
        assert len(made.effects()) == 1
