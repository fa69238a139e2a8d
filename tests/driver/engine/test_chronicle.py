"""The log has one line for each change of state, with the ids that it is about and nothing of the call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
import structlog
from structlog.testing import capture_logs

from driver.core.attempts import Answered
from driver.engine.chronicle import TOLD
from store.events import BY_KIND, CommandAccepted
from store.writer import Writer
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine

pytestmark = pytest.mark.anyio

ELSEWHERE: Final = {
    "operation.probed",
    "operation.annotated",
    "operation.diverged",
    "supervisor.verdict",
    "driver.started",
    "driver.recovered",
    "driver.fenced",
    "driver.unfenced",
    "driver.stopping",
}
"""Kinds that change no state of a command or operation, or are told where they come from."""


def states(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines about changes of state: those with the number of an event."""
    return [line["event"] for line in lines if "seq" in line]


async def done(rig: Rig, name: str) -> None:
    """One call, to its end, and to the lines about that."""
    await rig.intake.deliver([call(name, arguments={"n": name, "secret": "hunter2"})])
    await rig.settled(name)


def test_every_kind_of_event_is_told_or_listed_here() -> None:
    """A new kind is thought about."""
    assert {*TOLD, CommandAccepted.KIND, *ELSEWHERE} == set(BY_KIND)


async def test_a_call_is_three_lines_with_its_ids(tmp_path: Path) -> None:
    """Accepted, started, ended; at info; each once, in order, and nothing of its arguments or result."""
    provider = ScriptedProvider(answers=[Answered(result={"secret": "hunter3"})])
    with capture_logs() as lines:
        async with engine(tmp_path, provider) as rig:
            await done(rig, "cmd-1")
            found = await rig.operation()
    told = [line for line in lines if "seq" in line]
    assert states(lines) == ["operation_accepted", "operation_started", "operation_ended"]
    assert {line["log_level"] for line in told} == {"info"}
    for line in told:
        assert line["operation_id"] == found.operation_id
        assert (line["command_id"], line["run_id"]) == ("cmd-1", "run-1")
    assert told[2]["kind"] == "operation.succeeded"
    assert told[2]["effect"] == "occurred"
    assert "hunter" not in repr(lines)


async def test_the_lines_of_a_call_come_right_behind_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for no crowd: a lone agent thinks then, and its next call finds them written."""
    monkeypatch.setattr("driver.engine.chronicle.TOLD_AFTER_S", 3_600.0)
    with capture_logs() as lines:
        async with engine(tmp_path, ScriptedProvider()) as rig:
            await done(rig, "cmd-1")
            with anyio.fail_after(10):
                while not states(lines):
                    await anyio.lowlevel.checkpoint()
            assert states(lines) == ["operation_accepted", "operation_started", "operation_ended"]


async def test_a_large_answer_is_told_like_any_other(tmp_path: Path) -> None:
    """And nothing of it stands in the line."""
    provider = ScriptedProvider(answers=[Answered(result={"text": "x" * 30_000})])
    with capture_logs() as lines:
        async with engine(tmp_path, provider) as rig:
            await done(rig, "cmd-1")
    (ended,) = (line for line in lines if line["event"] == "operation_ended")
    assert (ended["kind"], ended["effect"]) == ("operation.succeeded", "occurred")
    assert "xxx" not in repr(lines)


async def test_what_is_logged_on_the_way_carries_the_operation(tmp_path: Path) -> None:
    """Whatever a provider logs while it is called has the ids of the call, and not of the one before."""
    seen: list[Mapping[str, Any]] = []

    class Talking(ScriptedProvider):
        async def dispatch(self, call: Any, progress: Any) -> Any:  # noqa: ANN401 - see the base
            seen.append(dict(structlog.contextvars.get_contextvars()))
            return await super().dispatch(call, progress)

    async with engine(tmp_path, Talking()) as rig:
        ids: list[str] = []
        for name in ("cmd-1", "cmd-2"):
            await done(rig, name)
            ids.append((await rig.operation(name)).operation_id)
        assert structlog.contextvars.get_contextvars() == {}
    assert [found["operation_id"] for found in seen] == ids
    assert {(found["run_id"], found["attempt"]) for found in seen} == {("run-1", 1)}


async def test_want_of_room_is_told_when_it_begins_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each, however many calls are refused meanwhile: no other line says that no work is done."""
    room = [False]

    def has_room(_: Writer) -> bool:
        return room[0]

    monkeypatch.setattr(Writer, "_has_room", has_room)
    with capture_logs() as lines:
        async with engine(tmp_path, ScriptedProvider()) as rig:
            for number in range(3):
                await rig.intake.deliver([call(f"cmd-{number}", arguments={"n": number})])
            room[0] = True
            for number in range(3, 5):
                await done(rig, f"cmd-{number}")
    told = [(line["event"], line["log_level"]) for line in lines if "room" in line["event"]]
    assert told == [("no_room", "warning"), ("room_again", "info")]
