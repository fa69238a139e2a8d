"""A person settles an operation on this machine: over the operator's socket, by uid, once."""

import json
import os
import pwd
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, Phase, Silence
from driver.local.server import serve_local
from driver.local.settings import LocalSettings
from store.records import JsonObject, JsonValue, OperationId, RunId
from tests.driver.engine.rig import Rig, ScriptedProvider, call, engine
from tests.driver.local.stage import effectd
from tests.driver.local.test_reads import LISTED
from tests.driver.local.world import World

pytestmark = pytest.mark.anyio

LOST = Silence(cause="connection_lost", message="gone")
ME = f"operator:{os.geteuid()}"
MY_NAME = pwd.getpwuid(os.geteuid()).pw_name
VERDICT: JsonObject = {"effect": "occurred", "note": "saw it", "evidence": ["ticket 7"]}


@asynccontextmanager
async def serving(folder: Path, provider: ScriptedProvider) -> AsyncGenerator[tuple[Rig, World]]:
    """An engine whose local API is served."""
    async with engine(folder, provider) as rig, anyio.create_task_group() as tasks:
        world = World(journal=rig.journal, runtime_dir=folder / "run", desk=rig.local)
        world.runtime_dir.chmod(0o750)
        await tasks.start(_serve, world)
        yield rig, world
        tasks.cancel_scope.cancel()


async def _serve(world: World, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await serve_local(world, LocalSettings(runtime_dir=world.runtime_dir), task_status=task_status)


async def post(
    world: World, operation_id: str, body: JsonValue, what: str = "reconcile", socket: str = "operator.sock"
) -> tuple[int, JsonObject]:
    """Send a body about an operation."""
    async with world.client(socket) as client:
        response = await client.post(f"/v1/operations/{operation_id}/{what}", json=body)
    found: JsonObject = response.json()
    return response.status_code, found


async def lost(rig: Rig) -> str:
    """An operation whose outcome nobody knows."""
    await rig.intake.deliver([call()])
    return (await rig.settled()).operation_id


async def test_a_verdict_is_201_with_the_operation_as_it_is_now(tmp_path: Path) -> None:
    """And with the event that holds it: who looked is the kernel's word, a name is a label."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        status, answer = await post(world, operation_id, VERDICT)
        alone = (await world.get(f"/v1/operations/{operation_id}")).json()
        unsettled = (await world.get("/v1/operations", unsettled="true")).json()["items"]
    assert status == 201
    assert list(answer) == [*LISTED, "seq"]
    assert (answer["effect"], answer["effect_by"], answer["settled"]) == ("occurred", "operator", True)
    (word,) = alone["verdicts"]
    assert word == {
        "seq": answer["seq"],
        "at": word["at"],
        "effect": "occurred",
        "actor": ME,
        "label": MY_NAME,
        "basis": "operator",
        "note": "saw it",
        "evidence": ["ticket 7"],
        "started_seq": 2,
    }
    assert [item["actor"] for item in alone["evidence"]] == [ME]
    assert unsettled == []


async def test_the_same_again_is_200_and_another_needs_an_override(tmp_path: Path) -> None:
    """Both words stay; the newest stands."""
    other: JsonObject = VERDICT | {"effect": "none", "note": "it is not there"}
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        first = await post(world, operation_id, VERDICT)
        again = await post(world, operation_id, VERDICT)
        refused = await post(world, operation_id, other)
        changed = await post(world, operation_id, other | {"override": True, "label": "ann"})
        alone = (await world.get(f"/v1/operations/{operation_id}")).json()
    assert (first[0], again[0], first[1]) == (201, 200, again[1])
    assert (refused[0], refused[1]["code"]) == (409, "already_settled")
    assert (changed[0], changed[1]["effect"]) == (201, "none")
    assert [(word["effect"], word["label"]) for word in alone["verdicts"]] == [
        ("occurred", MY_NAME),
        ("none", "ann"),
    ]


async def test_what_the_provider_said_stands(tmp_path: Path) -> None:
    """With `override` or without."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, world):
        operation_id = await lost(rig)
        for override in (False, True):
            status, answer = await post(world, operation_id, VERDICT | {"override": override})
            assert (status, answer["code"]) == (409, "outranked")


async def test_while_an_attempt_runs_it_is_too_early(tmp_path: Path) -> None:
    """409, and the operation ends as it ends."""
    async with serving(tmp_path, provider := ScriptedProvider(held_at=Phase.WRITTEN)) as (rig, world):
        await rig.intake.deliver([call()])
        await provider.arrived.wait()
        operation_id = (await rig.operation()).operation_id
        status, answer = await post(world, operation_id, VERDICT)
        provider.gate.set()
    assert (status, answer["code"]) == (409, "still_running")


@pytest.mark.parametrize(
    "change",
    [
        {"note": "x" * 2_001},
        {"note": "é" * 1_001},
        {"note": None},
        {"effect": "duplicated"},
        {"effect": None},
        {"evidence": "ticket 7"},
        {"evidence": ["x" * 2_001]},
        {"evidence": ["x"] * 33},
        {"override": "yes"},
        {"override": True, "note": " "},
        {"actor": "operator:0"},
    ],
)
async def test_a_body_that_is_no_verdict_is_422_before_anything_is_looked_at(
    tmp_path: Path, change: JsonObject
) -> None:
    """Even of an operation that nobody knows; and nothing is recorded."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        before = await rig.kinds()
        for wanted in (operation_id, f"op_{0:032x}", "nonsense"):
            status, answer = await post(world, wanted, VERDICT | change)
            assert (status, answer["code"]) == (422, "invalid_body")
        assert await rig.kinds() == before


@pytest.mark.parametrize(("what", "body"), [("reconcile", VERDICT), ("annotate", {"metadata": {"id": "1"}})])
async def test_what_is_not_known_is_404_and_the_reading_socket_takes_nothing(
    tmp_path: Path, what: str, body: JsonObject
) -> None:
    """Neither leaves a trace."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        before = await rig.kinds()
        status, answer = await post(world, f"op_{0:032x}", body, what)
        assert (status, answer["code"]) == (404, "operation_not_found")
        status, answer = await post(world, operation_id, body, what, socket="inspect.sock")
        assert (status, answer["code"]) == (403, "read_only_socket")
        assert await rig.kinds() == before


async def test_of_two_operators_at_once_one_is_told(tmp_path: Path) -> None:
    """Each over a connection of its own: one 201, and 409 for all the others."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        answers: list[int] = []

        async def settle(number: int) -> None:
            body = VERDICT | {"effect": ("none", "occurred")[number % 2], "note": f"by {number}"}
            answers.append((await post(world, operation_id, body))[0])

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(settle, number)
        assert (await rig.kinds()).count("operation.reconciled") == 1
    assert sorted(answers) == [201] + [409] * 7


async def test_an_annotation_is_accepted_and_shown(tmp_path: Path) -> None:
    """202 with its command; in lists and alone, with its history."""
    both: JsonObject = {"id": "42", "url": "https://example.test/42"}
    async with serving(tmp_path, ScriptedProvider()) as (rig, world):
        operation_id = await lost(rig)
        status, answer = await post(world, operation_id, {"metadata": {"id": "42"}}, "annotate")
        assert status == 202
        assert answer["operation_id"] == operation_id
        command = (await world.get(f"/v1/commands/{answer['command_id']}")).json()
        assert (command["kind"], command["receipt_kind"]) == ("operation.annotate", "command.completed")
        await post(world, operation_id, {"metadata": both}, "annotate")
        listed = (await world.get("/v1/operations")).json()["items"][0]
        alone = (await world.get(f"/v1/operations/{operation_id}")).json()
    assert listed["metadata"] == alone["metadata"] == both
    assert [item["metadata"] for item in alone["annotations"]] == [{"id": "42"}, both]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"metadata": {"colour": "red"}},
        {"metadata": {"id": 7}},
        {"metadata": {"title": "x" * 4_097}},
        {"metadata": {"title": "é" * 2_000, "id": "x" * 97}},
        {"metadata": None},
    ],
)
async def test_an_annotation_is_bounded(tmp_path: Path, body: JsonObject) -> None:
    """By names and by bytes, over all its values."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, world):
        operation_id = await lost(rig)
        status, answer = await post(world, operation_id, body, "annotate")
        assert (status, answer["code"]) == (422, "invalid_body")
        assert (await rig.operation()).metadata is None


async def test_late_answers_and_contradictions_are_part_of_the_story(tmp_path: Path) -> None:
    """What came after the end stands there, each with its event."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, world):
        operation_id = await lost(rig)
        rig.dispatcher.late(OperationId(operation_id), 1, Answered(result={"content": []}))
        await rig.reaches("operation.late_result")
        alone = (await world.get(f"/v1/operations/{operation_id}")).json()
    (late,) = alone["late_results"]
    assert (late["attempt"], late["effect"], late["seq"]) == (1, "occurred", 4)
    assert alone["divergences"] == []


async def test_a_parents_children_are_counted_as_of_now(tmp_path: Path) -> None:
    """Before anything has ended, too."""
    held = ScriptedProvider(held_at=Phase.WRITTEN)
    async with serving(tmp_path, held) as (rig, world):
        await rig.intake.deliver([call()])
        await held.arrived.wait()
        parent = (await rig.operation()).operation_id
        held.held_at = None
        child = call("cmd-2", run_id=RunId("child"), arguments={"n": 2})
        child = replace(child, data=child.data | {"parent_operation_id": parent})
        await rig.intake.deliver([child])
        await rig.settled("cmd-2")
        alone = (await world.get(f"/v1/operations/{parent}")).json()
        held.gate.set()
    children = [alone[name] for name in ("child_run_id", "child_ops_total", "child_ops_unresolved")]
    assert (alone["state"], children) == ("started", ["child", 1, 0])


# ------------------------------------------------------------ the command line


async def test_an_operator_settles_with_what_the_listing_says(tmp_path: Path) -> None:
    """What to type stands there; afterwards the story tells who said what, and how sure that is."""
    flags = f" --config {tmp_path / 'effectd.toml'}"
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, _):
        operation_id = await lost(rig)
        listed = await effectd(tmp_path, "ops", "--unsettled")
        advice = f"effectd reconcile {operation_id} --effect EFFECT --note TEXT{flags}"
        assert advice in listed.stdout
        assert advice in (await effectd(tmp_path, "show", "cmd-1")).stdout
        words = ("--effect", "occurred", "--note", "saw it", "--evidence", "ticket 7", "--evidence", "log")
        done = await effectd(tmp_path, "reconcile", "cmd-1", *words)
        assert (done.exit_code, done.stdout.startswith("Settled: ")) == (0, True)
        shown = await effectd(tmp_path, "show", operation_id)
        assert "Nothing is unsettled" in (await effectd(tmp_path, "ops", "--unsettled")).stdout
    assert f"verdict of {ME} ({MY_NAME}): it happened: saw it [ticket 7, log]" in shown.stdout
    assert "a person's word" in shown.stdout
    assert "--note TEXT --override" in shown.stdout
    assert advice not in shown.stdout


async def test_a_verdict_that_is_not_taken_says_what_to_do(tmp_path: Path) -> None:
    """1 where it is refused, 2 where it is none; `--json` has the whole answer."""
    async with serving(tmp_path, ScriptedProvider(answer=LOST)) as (rig, _):
        operation_id = await lost(rig)
        words = ("reconcile", operation_id, "--effect", "none")
        done = await effectd(tmp_path, *words, "--note", "looked", "--json")
        assert json.loads(done.stdout)["effect"] == "none"
        refused = await effectd(tmp_path, *words, "--note", "looked again")
        assert (refused.exit_code, "(already_settled)" in refused.stderr) == (1, True)
        long = await effectd(tmp_path, *words, "--note", "x" * 2_001, "--override")
        assert (long.exit_code, "(invalid_body)" in long.stderr) == (2, True)
        changed = await effectd(tmp_path, *words, "--note", "looked again", "--override", "--label", "ann")
        assert changed.exit_code == 0
        missing = await effectd(tmp_path, "reconcile", f"op_{0:032x}", "--effect", "none", "--note", "x")
        assert (missing.exit_code, "(operation_not_found)" in missing.stderr) == (1, True)


async def test_a_host_writes_down_what_an_operation_is_to_it(tmp_path: Path) -> None:
    """And reads it wherever the operation is shown."""
    async with serving(tmp_path, ScriptedProvider()) as (rig, _):
        await lost(rig)
        nothing = await effectd(tmp_path, "annotate", "cmd-1")
        assert (nothing.exit_code, "nothing to write down" in nothing.stderr) == (2, True)
        done = await effectd(tmp_path, "annotate", "cmd-1", "--id", "42", "--url", "https://example.test/42")
        assert (done.exit_code, done.stdout.startswith("Noted: ")) == (0, True)
        shown = await effectd(tmp_path, "show", "cmd-1")
    assert "https://example.test/42" in shown.stdout
    assert 'annotated: {"id": "42", "url": "https://example.test/42"}' in shown.stdout
