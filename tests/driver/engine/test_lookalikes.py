"""Look-alikes in the three modes, each across a restart: what guards stands in the journal."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import driver.engine.intake as intake_module
import driver.engine.lookalikes as lookalikes_module
import store.view as view_module
from driver.core.attempts import Answered, NotSent, Report, Silence
from driver.core.contracts import Contract
from driver.core.frames import CommandFrame
from store.events import CommandRefused
from store.lifecycle import Effect, State
from store.records import Identical, RunId
from tests.driver.engine.again import ask_again, receipt, refused, say
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


async def let_end(rig: Rig, *calls: CommandFrame) -> None:
    """Make calls, one after the other, each once the one before it has ended."""
    for frame in calls:
        await rig.intake.deliver([frame])
        await rig.settled(frame.command_id)


async def refusal(rig: Rig) -> str | None:
    """The code of the final refusal, if there was one."""
    return await code_of(rig, None)


async def code_of(rig: Rig, command_id: str | None) -> str | None:
    """The code of the final refusal of a command, or of the first one."""
    for event in await rig.events():
        if command_id is not None and event.command_id != command_id:
            continue
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


def resuming(command_id: str, run: str, *resumes: str, n: int = 1) -> CommandFrame:
    """A call of a run that resumes others."""
    frame = call(command_id, run_id=RunId(run), arguments={"n": n})
    return replace(frame, data={**frame.data, "resumes": list(resumes)})


@pytest.mark.parametrize("refused", [False, True])
async def test_the_first_call_of_a_run_is_judged_through_those_that_it_resumes(
    tmp_path: Path, *, refused: bool
) -> None:
    """What a run continues through others guards before the journal has anything of the run itself.

    And where no call of the one between was ever taken.
    """
    provider = ScriptedProvider(answers=[LOST])
    async with engine(tmp_path, provider, contract=Contract(declared=True)) as rig:
        await rig.intake.deliver([resuming("w-1", "r-1")])
        await rig.settled("w-1")
        if refused:
            await rig.intake.deliver([resuming("w-2", "r-2", "r-1", "nobody")])
            await rig.intake.deliver([resuming("w-2-again", "r-2", "r-1")])
        else:
            await rig.intake.deliver([resuming("o-2", "r-2", "r-1", n=2)])
            await rig.settled("o-2")
        await rig.intake.deliver([resuming("w-3", "r-3", "r-2")])
        assert await code_of(rig, "w-3") == "lookalike_unsettled"
        assert [one.arguments["n"] for one in provider.executed] == [1, 2][: 2 - refused]


async def test_a_run_that_continues_more_than_are_looked_through_gets_no_guarded_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write like it may stand in one that nobody looked at: the refusal says which bound it is."""
    for module in (view_module, intake_module):
        monkeypatch.setattr(module, "RESUMED_MAX", 2)
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=Contract(declared=True)) as rig:
        for n in range(1, 4):
            await rig.intake.deliver([resuming(f"o-{n}", f"r-{n}", *([f"r-{n - 1}"] if n > 1 else []), n=n)])
            await rig.settled(f"o-{n}")
        assert await refusal(rig) is None
        await rig.intake.deliver([resuming("o-4", "r-4", "r-3", n=4)])
        assert await refusal(rig) == "invalid"
        assert [one.arguments["n"] for one in provider.executed] == [1, 2, 3]
        repeated = resuming("o-5", "r-4", "r-3", n=4)
        await rig.intake.deliver([replace(repeated, data={**repeated.data, "repeat": True})])
        assert (await rig.settled("o-5")).state is State.SUCCEEDED


# ------------------------------------------------------------ what nobody sends again, and runs again

AWAY = NotSent(reason="connect_failed", message="refused")
GUARDED = Contract(declared=True)
ONCE = Contract(declared=True, identical="once-per-run")
IN_RUNS = [
    (call("cmd-1"), call("cmd-2")),
    (resuming("cmd-1", "r-1"), resuming("cmd-2", "r-2", "r-1")),
    (resuming("cmd-1", "r-2", "r-1"), resuming("cmd-2", "r-1")),
]
"""Two equal calls: of one run, and of two of which either continues the other."""


@pytest.mark.parametrize(
    ("contract", "second", "code"),
    [
        (GUARDED, LOST, "lookalike_unsettled"),
        (GUARDED, DONE, None),
        (ONCE, LOST, "lookalike_unsettled"),
        (ONCE, DONE, "duplicate_completed"),
        (ONCE, NO, "duplicate_failed"),
        (replace(GUARDED, identical="allow"), LOST, None),
    ],
)
@pytest.mark.parametrize("calls", IN_RUNS)
async def test_what_was_sent_again_meanwhile_is_not_retried(
    tmp_path: Path, contract: Contract, second: Report, code: str | None, calls: tuple[CommandFrame, ...]
) -> None:
    """The first call never left, an equal one did: an attempt of the first would be the second effect."""
    first, other = calls
    provider = ScriptedProvider()
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([resuming("before", "r-1", n=9)])
        await rig.settled("before")
        provider.objections.append(AWAY)
        await rig.intake.deliver([first])
        assert (await rig.settled()).state is State.NOT_EXECUTED
        provider.answers.append(second)
        await rig.intake.deliver([other])
        await rig.settled("cmd-2")
        executed = len(provider.executed)
        if code is None:
            await ask_again(rig)
            assert (await receipt(rig))[1]["outcome"] == "succeeded"
        else:
            assert await refused(rig) == code
            assert len(provider.executed) == executed


async def test_once_its_look_alike_is_settled_it_is_retried(tmp_path: Path) -> None:
    """A person has seen that the second one did nothing."""
    provider = ScriptedProvider(objections=[AWAY], answers=[LOST])
    async with engine(tmp_path, provider, contract=ONCE) as rig:
        await let_end(rig, call(), call("cmd-2"))
        assert await refused(rig) == "lookalike_unsettled"
        await say(rig, Effect.NONE, command_id="cmd-2")
        await ask_again(rig, "retry-2")
        assert (await receipt(rig, "retry-2"))[1]["outcome"] == "succeeded"


async def test_a_second_one_that_was_meant_is_no_look_alike_of_a_retry(tmp_path: Path) -> None:
    """Whoever gave it has said so."""
    provider = ScriptedProvider(objections=[AWAY], answers=[LOST])
    async with engine(tmp_path, provider, contract=GUARDED) as rig:
        await let_end(rig, call(), call("cmd-2", repeat=True))
        await ask_again(rig)
        assert (await receipt(rig))[1]["outcome"] == "succeeded"


async def test_what_is_found_out_of_a_look_alike_holds_a_retry_back_that_waits(tmp_path: Path) -> None:
    """The attempt was asked for, and has not begun, when a person sees that the second one happened."""
    provider = ScriptedProvider(objections=[AWAY], answers=[LOST])
    async with engine(tmp_path, provider, contract=ONCE) as rig:
        await let_end(rig, call(), call("cmd-2"))
        await say(rig, Effect.NONE, command_id="cmd-2")
        rig.posture.confirmed = False
        await ask_again(rig)
        await say(rig, Effect.OCCURRED, command_id="cmd-2")
        rig.posture.confirmed = True
        rig.engine.pump()
        assert (await receipt(rig))[1]["code"] == "duplicate_completed"
    assert len(provider.executed) == 1


@pytest.mark.parametrize("contract", [GUARDED, ONCE])
async def test_the_look_alike_of_what_is_about_to_be_retried_is_refused(
    tmp_path: Path, contract: Contract
) -> None:
    """It had ended without an effect, and is as good as running: also in the next process life."""
    provider = ScriptedProvider(objections=[AWAY])
    async with engine(tmp_path, provider, contract=contract) as rig:
        await rig.intake.deliver([call()])
        await rig.settled()
        rig.posture.confirmed = False
        await ask_again(rig)
        await rig.intake.deliver([call("cmd-2")])
        assert await code_of(rig, "cmd-2") == "lookalike_unsettled"
    async with engine(tmp_path, provider, contract=contract, confirmed=False) as rig:
        await rig.intake.deliver([call("cmd-3")])
        assert await code_of(rig, "cmd-3") == "lookalike_unsettled"
        rig.desk.history_confirmed()
        assert (await receipt(rig))[1]["outcome"] == "succeeded"
        await rig.intake.deliver([call("cmd-4")])
        assert await code_of(rig, "cmd-4") == ("duplicate_completed" if contract is ONCE else None)


async def test_a_retry_in_more_runs_than_are_looked_through_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An equal write may stand where nobody looked, on either side of its run."""
    for module in (view_module, lookalikes_module):
        monkeypatch.setattr(module, "RESUMED_MAX", 2)
    provider = ScriptedProvider(objections=[AWAY])
    async with engine(tmp_path, provider, contract=GUARDED) as rig:
        await rig.intake.deliver([resuming("cmd-1", "r-1")])
        await rig.settled()
        for n in range(2, 5):
            await rig.intake.deliver([resuming(f"o-{n}", f"r-{n}", f"r-{n - 1}", n=n)])
            await rig.settled(f"o-{n}")
        assert await refused(rig) == "overloaded"
