"""Look-alikes in the three modes, each across a restart: what guards stands in the journal."""

import json
from pathlib import Path

import pytest

from driver.core.attempts import Answered, Report, Silence
from driver.core.contracts import Contract
from store.events import CommandRefused
from store.lifecycle import State
from store.records import Identical
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

DONE = Answered(result={"content": []})
NO = Answered(result={"content": []}, is_error=True)
LOST = Silence(cause="connection_lost", message="gone")


async def second_of(folder: Path, identical: Identical, first: Report, *, repeat: bool = False) -> str:
    """What becomes of the second of two equal calls, which arrives in the process life after the first's."""
    contract = Contract(declared=True, identical=identical)
    async with engine(folder, ScriptedProvider(answer=first), contract=contract) as rig:
        await rig.intake.deliver([call("cmd-1")])
        await rig.settled("cmd-1")
    async with engine(folder, provider := ScriptedProvider(), contract=contract) as rig:
        await rig.intake.deliver([call("cmd-2", repeat=repeat)])
        code = await refusal(rig)
        if code is not None:
            assert provider.executed == []
            return code
        assert (await rig.settled("cmd-2")).state is State.SUCCEEDED
        assert len(provider.executed) == 1
        return "ran"


async def refusal(rig: Rig) -> str | None:
    """The code of the final refusal, if there was one."""
    for event in await rig.events():
        if event.kind == CommandRefused.KIND and event.body is not None:
            code: str = json.loads(event.body)["data"]["code"]
            return code
    return None


@pytest.mark.parametrize(
    ("identical", "first", "repeat", "expected"),
    [
        ("guard-unsettled", LOST, False, "lookalike_unsettled"),
        ("guard-unsettled", LOST, True, "ran"),
        ("guard-unsettled", DONE, False, "ran"),
        ("guard-unsettled", NO, False, "ran"),
        ("once-per-run", LOST, False, "lookalike_unsettled"),
        ("once-per-run", LOST, True, "lookalike_unsettled"),
        ("once-per-run", DONE, False, "duplicate_completed"),
        ("once-per-run", DONE, True, "duplicate_completed"),
        ("once-per-run", NO, False, "duplicate_failed"),
        ("allow", LOST, False, "ran"),
        ("allow", DONE, False, "ran"),
        ("allow", NO, True, "ran"),
    ],
)
async def test_what_a_mode_says_of_the_second_call_outlives_the_process(
    tmp_path: Path, identical: Identical, first: Report, expected: str, *, repeat: bool
) -> None:
    """Each mode, each outcome of the first call, with and without `repeat`."""
    assert await second_of(tmp_path, identical, first, repeat=repeat) == expected
