"""Probes on real processes: what a crash left unknown is found in the world, by servers that others wrote."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.peers import from_npm, from_pypi
from tests.system.audit import key_of, must_hold
from tests.system.history import Json
from tests.system.plane import ScriptedPlane, call, scripted_plane
from tests.system.sandbox import Sandbox, sandbox
from tests.system.test_verdicts import command, said
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

KILLED: Final = -9
PROBE: Final[Json] = {
    "tool": "look",
    "matches": "to_number(result.stdout)",
    "visible_after_s": 0,
    "attempts": 3,
    "authoritative_absence": True,
}


def looking_at_the_ledger(made: Sandbox, **probe: object) -> None:
    """Declare that the program `act` writes its key into a ledger, where `look` counts it."""
    ledger = made.root / "book"
    ledger.touch()
    made.configure(
        providers__desk={"kind": "command", "cwd": str(made.root), "roots": [str(made.root)]},
        providers__desk__tools__act={"argv": ["sh", "-c", 'echo "$1" >> book', "sh", "=key"]},
        providers__desk__tools__act__probe={**PROBE, **probe},
        providers__desk__tools__act__probe__arguments={"marker": "=key"},
        providers__desk__tools__look={
            "effect": "read",
            "argv": [
                "sh",
                "-c",
                'echo look >> looks; grep -c -- "$1" book || true',
                "sh",
                "=arguments.marker",
            ],
        },
    )


async def verdicts(plane: ScriptedPlane) -> list[str]:
    """What each look came to, in order."""
    return [event["data"]["verdict"] for event in said(plane, "operation.probed")]


def with_git(repository: Path) -> dict[str, Json]:
    """Return the tables of the public git server, whose log shows what was committed."""
    argv = [from_pypi("mcp-server-git"), "--repository", str(repository)]
    return {
        "providers__git": {"kind": "mcp", "argv": argv},
        "providers__git__tools__git_log": {"effect": "read"},
        "providers__git__tools__git_commit__probe": {
            "tool": "git_log",
            "matches": "contains(join('', result.content[].text), arguments.message)",
            "visible_after_s": 0,
            "attempts": 3,
            "authoritative_absence": True,
        },
        "providers__git__tools__git_commit__probe__arguments": {
            "repo_path": "=arguments.repo_path",
            "max_count": 50,
        },
    }


def git(path: Path, *arguments: str) -> str:
    """Run git, and return what it says."""
    done = subprocess.run(["git", "-C", str(path), *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def make_repository(path: Path) -> None:
    """Make a repository with a first commit, and something to commit."""
    path.mkdir()
    git(path, "init", "--quiet")
    git(path, "config", "user.email", "test@example.invalid")
    git(path, "config", "user.name", "test")
    (path / "first").write_text("content")
    git(path, "add", "first")
    git(path, "commit", "--quiet", "-m", "first")
    (path / "second").write_text("content")
    git(path, "add", "second")


@pytest.mark.parametrize(
    ("kill_at", "effect", "verdict"),
    [("dispatch.answered", "occurred", "occurred"), ("dispatch.before_call", "none", "absent")],
)
async def test_a_lost_commit_is_found_in_the_log(
    zygote: Zygote, kill_at: str, effect: str, verdict: str
) -> None:
    """The daemon died after the commit, or just before it: the log of the repository tells which."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        repository = made.root / "repository"
        await anyio.to_thread.run_sync(make_repository, repository)
        made.configure(**with_git(repository))
        order = call("cmd-1", "git/git_commit", repo_path=str(repository), message="the lost one")
        await plane.give(order)
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.unknown", "crash_window")
        await plane.until(lambda: said(plane, "operation.reconciled"))
        (word,) = said(plane, "operation.reconciled")
        assert (word["data"]["actor"], word["data"]["effect"]) == ("probe:git/git_log", effect)
        assert word["data"]["supersedes"] == receipt["seq"]
        assert (word["terminal"], word["best_effort"]) == (False, False)
        assert await verdicts(plane) == [verdict]
        found = await made.operation(key_of(order))
        assert (found["effect"], found["effect_by"], found["settled"]) == (effect, "probe", True)
        assert (await made.status())["unsettled"] == 0
        assert await life.stop() == 0
        await must_hold(made)
        log = await anyio.to_thread.run_sync(git, repository, "log", "--format=%s")
        assert log.splitlines().count("the lost one") == (effect == "occurred")


@pytest.mark.parametrize(
    ("kill_at", "verdict"), [("dispatch.answered", "occurred"), ("dispatch.before_call", "absent")]
)
async def test_a_lost_memory_is_found_in_the_graph(
    zygote: Zygote, tmp_path: Path, kill_at: str, verdict: str
) -> None:
    """A server of another language, asked for what a call's own arguments name."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        tool = "providers__memory__tools__create_entities__probe"
        made.configure(
            providers__memory={"kind": "mcp", "argv": [from_npm("mcp-server-memory")]},
            providers__memory__env={"MEMORY_FILE_PATH": f"{tmp_path}/memory"},
            providers__memory__tools__open_nodes={"effect": "read"},
            **{
                tool: {
                    **PROBE,
                    "tool": "open_nodes",
                    "matches": "length(result.structuredContent.entities)",
                },
                f"{tool}__arguments": {"names": "=arguments.entities[].name"},
            },
        )
        entity = {"name": "effectd", "entityType": "daemon", "observations": ["it counts"]}
        await plane.give(call("cmd-1", "memory/create_entities", entities=[entity]))
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        await plane.until(lambda: said(plane, "operation.reconciled"))
        assert await verdicts(plane) == [verdict]
        assert await life.stop() == 0


async def test_a_program_finds_what_another_has_done(zygote: Zygote) -> None:
    """Probes of a command provider are programs under shims, and leave nothing in the spool."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        looking_at_the_ledger(made)
        order = call("cmd-1", "desk/act")
        await plane.give(order)
        life = made.start()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        asked = command("p-1", "operation.probe", operation_id=key_of(order))
        await plane.give(asked)
        told = (await plane.receipt_of("p-1"))["data"]["result"]
        assert (told["verdict"], told["matches"]) == ("occurred", 1)
        (made.root / "book").write_text("")
        await plane.give(command("p-2", "operation.probe", operation_id=key_of(order)))
        again = (await plane.receipt_of("p-2"))["data"]["result"]
        assert (again["verdict"], said(plane, "operation.reconciled")) == ("absent", [])
        assert await life.stop() == 0
        assert [folder.name for folder in (made.state / "spool").glob("*")] == []


@pytest.mark.parametrize(
    "kill_at",
    ["errand.taken", "probe.answered", "probe.recorded", "errand.done", "journal.before_commit:3"],
)
async def test_a_kill_around_a_look_costs_a_look_at_most(zygote: Zygote, kill_at: str) -> None:
    """The command gets one receipt, the operation one verdict, and what is asked is asked twice at most."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        looking_at_the_ledger(made, attempts=1, visible_after_s=3_600)
        await made_unknown(made, plane)
        operation_id = key_of(call("cmd-1", "desk/act"))
        await plane.give(command("p-1", "operation.probe", operation_id=operation_id))
        assert await made.start(kill_at=kill_at).exit_code() == KILLED
        life = made.start()
        told = await plane.receipt_of("p-1")
        assert (told["kind"], told["data"]["result"]["verdict"]) == ("command.completed", "occurred")
        assert len(said(plane, "operation.reconciled")) == 1
        assert 1 <= len(said(plane, "operation.probed")) <= 2
        assert len((made.root / "looks").read_text().splitlines()) <= 2
        assert await life.stop() == 0


async def made_unknown(made: Sandbox, plane: ScriptedPlane) -> None:
    """Leave an operation behind that has happened, and whose outcome nobody knows."""
    await plane.give(call("cmd-1", "desk/act"))
    life = made.start(EFFECTD_FAULT_AFTER_EFFECT="desk/act")
    assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.unknown"
    assert await life.stop() == 0


async def test_a_person_asks_on_the_command_line(zygote: Zygote) -> None:
    """`effectd probe` on the real executable, and the story tells what was found."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        looking_at_the_ledger(made, attempts=1, visible_after_s=3_600)
        await made_unknown(made, plane)
        made.start()
        await made.status()
        asked = await made.command("probe", "cmd-1", "--json")
        assert asked.code == 0, asked.text
        found: dict[str, Any] = json.loads(asked.text)
        assert (found["verdict"], found["matches"]) == ("occurred", 1)
        shown = await made.command("show", "cmd-1")
        assert "probe: occurred, 1 found" in shown.text
