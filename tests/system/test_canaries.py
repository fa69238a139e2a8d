"""I12: secrets in every declared place, and then every byte that the daemon wrote is searched for them."""

import json
import re
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import pytest
from anyio import to_thread

from tests.servers.leaky_mcp import EMAIL
from tests.system.plane import TOKEN, ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import ROOT, Zygote

pytestmark = [pytest.mark.anyio, pytest.mark.kill, pytest.mark.lane]

SERVER: Final = ROOT / "tests" / "servers" / "leaky_mcp.py"
NUMBER: Final = 471_108_154_711
SHORT: Final = "q7Zw"
IN_ARGUMENTS: Final[dict[str, Any]] = {
    "token": "canary-of-an-argument",
    "number": NUMBER,
    "deep": {"list": [{"key": 'canary "in depth"\nof a line'}, {"key": "canary-und-Ümläute"}]},
    "whole": {"a": ["canary-in-a-list"], "canary-as-a-key": True},
}
REDACT: Final = [
    "arguments.token",
    "arguments.number",
    "arguments.pin",
    "arguments.deep.list.*.key",
    "arguments.whole",
    "result.structuredContent.people.*.email",
]
ENV: Final = "canary-of-the-environment"
ENV_FILE: Final = "canary-of-a-file-for-the-environment"
CALL_CANARIES: Final = {
    "argument": "canary-of-an-argument",
    "number": str(NUMBER),
    "pin": SHORT,
    "depth": "in depth",
    "unicode": "canary-und-",
    "list": "canary-in-a-list",
    "key": "canary-as-a-key",
    "result": EMAIL,
}
ALWAYS_SECRET: Final = {"token": TOKEN, "environment": ENV, "environment file": ENV_FILE}

MODES: Final = ("answer", "tool error", "protocol error", "large")
LOST: Final = "cmd-lost"
LISTS: Final = (
    *("/v1/operations", "/v1/operations?unsettled=true", "/v1/runs", "/v1/events", "/v1/status"),
    *("/v1/dead-letters", "/v1/export", "/v1/no", "/metrics", "/healthz", "/readyz"),
)
COMMANDS: Final = (
    *(["ops"], ["ops", "--json"], ["ops", "--unsettled"], ["runs"], ["tail"], ["tail", "--json"], ["verify"]),
    *(["metrics"], ["status"], ["status", "--json"], ["export"], ["export", "--format", "csv"]),
)
READ_MODES: Final = ("death", "garbage")
"""Ways to be lost: a write would be unsettled then, and its arguments needed until somebody settles it."""


def tables(made: Sandbox, redact: list[str]) -> dict[str, Mapping[str, Any]]:
    """The configuration of a server that tells all it knows."""
    secret = made.root / "secret"
    secret.write_text(ENV_FILE + "\n")
    secret.chmod(0o600)
    contract = {"redact": redact, "receipt": "result._meta.ref"}
    return {
        "log": {"level": "debug"},
        "providers__leaky": {
            "kind": "mcp",
            "argv": [sys.executable, "-I", "-S", str(SERVER), str(made.ledger)],
        },
        "providers__leaky__env": {"CANARY": ENV},
        "providers__leaky__env_files": {"CANARY_FILE": str(secret)},
        "providers__leaky__tools__leak": contract,
        "providers__leaky__tools__look": {**contract, "effect": "read"},
        "providers__leaky__tools__echo": {
            "redact": [path for path in redact if path.startswith("arguments")]
        },
    }


@asynccontextmanager
async def leaking(zygote: Zygote, redact: list[str]) -> AsyncGenerator[tuple[Sandbox, ScriptedPlane, Life]]:
    """A daemon whose tools tell all that they know, after one call in each way to do that."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.configure(**tables(made, redact))
        life = made.start(patch="traced", SPANS=str(made.root / "spans-0"))
        calls = [(tool, mode) for tool in ("leak", "echo") for mode in MODES]
        calls += [("look", mode) for mode in READ_MODES]
        for number, (tool, mode) in enumerate(calls):
            await plane.give(call(f"cmd-{number}", f"leaky/{tool}", mode=mode, n=number, **IN_ARGUMENTS))
            await plane.receipt_of(f"cmd-{number}")
        # a write that may have happened: a wall is made of it, until somebody settles it
        lost = call(LOST, "leaky/leak", run_id="run-2", mode="death", n=77, **IN_ARGUMENTS)
        await plane.give(lost)
        await plane.receipt_of(LOST)
        # a short value withholds every text that quotes it, and would hide what the others let through
        await plane.give(call("cmd-pin", "leaky/leak", mode="tool error", n=0, pin=SHORT))
        await plane.receipt_of("cmd-pin")
        # refused by the tool's own schema, which quotes what it refuses
        await plane.give(call("cmd-bad", "leaky/leak", n=CALL_CANARIES["argument"], **IN_ARGUMENTS))
        await plane.receipt_of("cmd-bad")
        # refused by the daemon: the arguments are no object
        invalid = call("cmd-invalid", "leaky/leak")
        invalid["data"]["arguments"] = [IN_ARGUMENTS]
        await plane.give(invalid)
        await plane.receipt_of("cmd-invalid")
        # the same once more, and another content under its id
        await plane.redeliver("cmd-0")
        await plane.say(call("cmd-0", "leaky/leak", mode="answer", n=99, **IN_ARGUMENTS))
        await plane.answer_to("cmd-0")
        yield made, plane, life


async def ask(made: Sandbox, plane: ScriptedPlane) -> dict[str, bytes]:
    """Ask for everything that can be asked, as people and as programs do; return the answers of the API."""
    found: dict[str, bytes] = {}
    operations = [
        event["operation_id"] for event in plane.history.events() if event["kind"] == "command.accepted"
    ]
    runs = {event["run_id"] for event in plane.history.events() if event.get("run_id")}
    async with made._client() as client:
        for path in (*LISTS, *(f"/v1/runs/{run}" for run in runs), *map(wall_of, runs)):
            found[path] = (await client.get(path)).content
        for name in operations:
            found[f"/v1/operations/{name}"] = (await client.get(f"/v1/operations/{name}")).content
            for word in ("approve", "probe", "retry", "compensate", "annotate", "reconcile"):
                refused = await client.post(f"/v1/operations/{name}/{word}", json={"nope": 1})
                assert refused.status_code >= HTTPStatus.BAD_REQUEST
                found[f"problem: {name} {word}"] = refused.content
    for arguments in COMMANDS:
        await made.command(*arguments)
    for run in runs:
        await made.command("wall", run)
    for name in operations:
        await made.command("show", name)
        await made.command("show", name, "--json")
    return found


def written(made: Sandbox) -> dict[str, bytes]:
    """Every file that a daemon, or a command of ours, wrote: the journal, marks, logs, output."""
    files = [
        *made.state.rglob("*"),
        *made.runtime.rglob("*"),
        *made.root.glob("output-*"),
        *made.root.glob("spans-*"),
    ]
    return {str(file.relative_to(made.root)): file.read_bytes() for file in files if file.is_file()}


async def settle(made: Sandbox, plane: ScriptedPlane, command_id: str) -> None:
    """Record an operator's word about what may have happened: then its arguments are needed no more."""
    receipt = await plane.receipt_of(command_id)
    path = f"/v1/operations/{receipt['operation_id']}/reconcile"
    status, _ = await made.post(path, {"effect": "none", "note": "looked", "evidence": []})
    assert status == HTTPStatus.CREATED


def told(life: Life) -> dict[str, bytes]:
    """What its service manager was told."""
    assert any(line.startswith("STATUS=") for line in life.states)
    return {"notify": "\n".join(life.states).encode()}


def said(plane: ScriptedPlane) -> dict[str, bytes]:
    """Everything that the plane was sent: hellos, events, refusals, error frames."""
    answers = [answer for order in plane.orders.values() for answer in order.answers]
    events = [json.dumps(event) for event in plane.history.events()]
    frames = [json.dumps(frame) for frame in (*plane.hellos, *plane.errors, *answers)]
    return {"events": "\n".join(events).encode(), "frames": "\n".join(frames).encode()}


def wall_of(run: str) -> str:
    """Where the local API shows the wall of a run."""
    return f"/v1/supervisor/walls/{run}"


def hits(places: Mapping[str, bytes], canaries: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield place and canary for each that is found, in the forms in which bytes may hold it."""
    for name, canary in canaries.items():
        forms = {
            canary,
            json.dumps(canary)[1:-1],
            json.dumps(json.dumps(canary)[1:-1])[1:-1],
            canary.encode("utf-16-le").decode("latin-1"),
        }
        pattern = re.compile(b"|".join(re.escape(form.encode()) for form in forms), re.IGNORECASE)
        for place, content in places.items():
            if pattern.search(content):
                yield place, name


async def test_no_byte_that_the_daemon_writes_holds_a_secret(zygote: Zygote) -> None:
    """Events, log, journal, local API, command line, problems: while it runs, and after it has stopped.

    While it runs the journal may hold arguments that are still needed; once the receipts are acknowledged it
    does not, nor does its `-wal`.
    """
    secrets = {**CALL_CANARIES, **ALWAYS_SECRET}
    async with leaking(zygote, REDACT) as (made, plane, life):
        answers = await ask(made, plane)
        assert len(made.effects()) == 2 * len(MODES) + len(READ_MODES) + 2
        assert b"effectd_attempts_total" in answers["/metrics"]
        assert b"operation_id" in answers[wall_of("run-2")]
        assert list(hits(answers, secrets)) == []
        assert list(hits(said(plane), secrets)) == []
        await settle(made, plane, LOST)
        assert await life.stop() == 0
        assert list(hits(told(life), secrets)) == []
        files = await to_thread.run_sync(written, made)
        assert {"state/journal.db", "state/digest.key", "output-0", "spans-0"} <= files.keys()
        assert b"tools/call leak" in files["spans-0"]
        assert list(hits(files, secrets)) == []
        assert any(b"arguments   erased" in content for content in files.values())


async def test_what_is_not_declared_is_found_everywhere(zygote: Zygote) -> None:
    """Negative control: without `redact` the same search finds each secret of a call, and no other."""
    async with leaking(zygote, []) as (made, plane, life):
        answers = await ask(made, plane)
        assert await life.stop() == 0
        files = await to_thread.run_sync(written, made)
        in_events = {name for place, name in hits(said(plane), CALL_CANARIES) if place == "events"}
        assert in_events == set(CALL_CANARIES)
        assert {name for _, name in hits(answers, CALL_CANARIES)} == set(CALL_CANARIES)
        in_wall = {name for place, name in hits(answers, CALL_CANARIES) if place == wall_of("run-2")}
        assert "argument" in in_wall
        assert list(hits({"/metrics": answers["/metrics"], **told(life)}, CALL_CANARIES)) == []
        found = {place for place, _ in hits(files, CALL_CANARIES)}
        assert {"state/journal.db", "output-0"} <= found
        assert "spans-0" not in found
        assert list(hits({**files, **answers, **said(plane)}, ALWAYS_SECRET)) == []


async def test_a_killed_daemon_leaves_its_secrets_to_the_next_to_erase(zygote: Zygote) -> None:
    """What was due when it was killed, and what its `-wal` held, the next life erases."""
    async with leaking(zygote, REDACT) as (made, plane, life):
        await life.kill()
        before = await to_thread.run_sync(written, made)
        held = {place for place, _ in hits(before, CALL_CANARIES)}
        assert held <= {"state/journal.db", "state/journal.db-wal"}
        fresh = made.start()
        await fresh.ready()
        await plane.connected()
        await settle(made, plane, LOST)
        assert await fresh.stop() == 0
        files = await to_thread.run_sync(written, made)
        assert list(hits(files, CALL_CANARIES)) == []


async def test_a_restart_without_the_key_is_refused_by_name(zygote: Zygote) -> None:
    """A journal with keyed digests does not go on without their key, and says which file is missing."""
    async with leaking(zygote, REDACT) as (made, _plane, life):
        await life.kill()
        (made.state / "digest.key").rename(made.root / "digest.key")
        fresh = made.start()
        assert await fresh.exit_code() == 2
        assert "digest.key" in fresh.text
        (made.root / "digest.key").rename(made.state / "digest.key")
        assert await made.start().stop() == 0
