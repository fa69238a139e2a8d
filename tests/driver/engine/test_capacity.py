"""How much can be said of one operation: what decides about it must be able to read all of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from driver.engine.capacity import EVENTS_MAX, WORDS_MAX
from store.lifecycle import Effect
from store.view import EVIDENCE_MAX, OPERATION_EVENTS_MAX
from tests.driver.engine.again import GONE, PLAIN, ask_again, receipt, receipt_now, refused, say
from tests.driver.engine.rig import Rig, ScriptedProvider, call, command, engine

pytestmark = pytest.mark.anyio

VERDICT = {"effect": "none", "actor": "somebody", "note": "it is not there", "override": True}


async def lost(rig: Rig) -> str:
    """Have a call whose outcome nobody knows; return its operation."""
    await rig.intake.deliver([call()])
    return (await rig.settled()).operation_id


async def answer(rig: Rig, kind: str, operation_id: str, number: int, data: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Give a command about an operation; return the code of its refusal, or None where it was done."""
    name = f"{kind}-{number}"
    await rig.intake.deliver([command(kind, name, operation_id=operation_id, **data)])
    found = await receipt_now(rig, name)
    assert found is not None, "it is done, or refused, at once"
    return found[1].get("code")


def test_the_bounds_leave_room_for_what_the_daemon_records() -> None:
    """References fill a part of what can be read, verdicts a larger one, and nobody all of it."""
    bounds = EVENTS_MAX
    assert bounds["operation.annotate"] < bounds["operation.retry"] < bounds["operation.reconcile"]
    assert bounds["operation.reconcile"] < OPERATION_EVENTS_MAX
    assert WORDS_MAX < EVIDENCE_MAX


async def test_references_beyond_the_bound_are_refused_and_verdicts_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever annotates for ever keeps nobody from saying what happened."""
    bounds = {**EVENTS_MAX, "operation.annotate": 6}
    monkeypatch.setattr("driver.engine.capacity.EVENTS_MAX", bounds)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        operation_id = await lost(rig)
        codes = [
            await answer(rig, "operation.annotate", operation_id, n, {"metadata": {"title": str(n)}})
            for n in range(5)
        ]
        assert codes == [None, None, None, "overloaded", "overloaded"]
        assert await answer(rig, "operation.reconcile", operation_id, 1, VERDICT) is None


async def test_verdicts_have_a_bound_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was said of its attempts: the evidence that an effect follows from is read whole."""
    monkeypatch.setattr("driver.engine.capacity.WORDS_MAX", 3)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        operation_id = await lost(rig)
        codes = [
            await answer(rig, "operation.reconcile", operation_id, n, VERDICT | {"note": str(n)})
            for n in range(4)
        ]
    assert codes == [None, None, None, "overloaded"]


async def test_without_the_bound_an_attempt_could_go_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: where more was said than is read, the newest word is the one that nobody sees."""
    monkeypatch.setattr("store.view.EVIDENCE_MAX", 2)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await lost(rig)
        for effect in (Effect.OCCURRED, Effect.NONE, Effect.OCCURRED):
            await say(rig, effect)
        await ask_again(rig)
        _, data = await receipt(rig)
    assert data["outcome"] == "succeeded"
    assert len(provider.executed) == 2


async def test_another_attempt_is_refused_at_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule R rests on all that was said."""
    monkeypatch.setattr("driver.engine.capacity.WORDS_MAX", 1)
    provider = ScriptedProvider(answers=[GONE])
    async with engine(tmp_path, provider, contract=PLAIN) as rig:
        await lost(rig)
        await say(rig, Effect.NONE)
        assert await refused(rig) == "overloaded"
    assert len(provider.executed) == 1
