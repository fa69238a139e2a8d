"""Whatever is wrong with a frame, a file or a program: a clear word, and nothing lost or executed."""

import hashlib
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.audit import must_hold
from tests.system.history import Json
from tests.system.plane import TOKEN, call, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

pytestmark = pytest.mark.anyio

GARBAGE: tuple[tuple[str, str | bytes], ...] = (
    ("empty", ""),
    ("not JSON", "hello"),
    ("cut short", '{"type":"ack","seq":'),
    ("two values", '{"type":"ack","seq":0}{"type":"ack","seq":0}'),
    ("an array", "[]"),
    ("a number", "1"),
    ("null", "null"),
    ("no type", "{}"),
    ("a type that is no string", '{"type":1}'),
    ("an unknown type", '{"type":"reboot"}'),
    ("a duplicate key", '{"type":"ack","seq":0,"seq":9}'),
    ("NaN", '{"type":"ack","seq":NaN}'),
    ("Infinity", '{"type":"ack","seq":Infinity}'),
    ("a number beyond doubles", '{"type":"ack","seq":1e400}'),
    ("a lone surrogate", '{"type":"\\ud800"}'),
    ("100,000 levels deep", '{"type":' + "[" * 100_000),
    ("65 levels deep", '{"type":"x","x":' + "[" * 65 + "]" * 65 + "}"),
    ("an integer of 5,000 digits", '{"type":"ack","seq":' + "9" * 5_000 + "}"),
    ("a binary frame", b'{"type":"ack","seq":0}'),
    ("UTF-16", "\ufeff" + '{"type":"ack","seq":0}'),
    ("a boolean seq", '{"type":"ack","seq":true}'),
    ("a negative seq", '{"type":"ack","seq":-1}'),
    ("a seq that is a string", '{"type":"ack","seq":"1"}'),
    ("an acknowledgement of the future", '{"type":"ack","seq":1000000}'),
    ("a nack without a code", '{"type":"nack","seq":1}'),
    ("a command without an id", '{"type":"command","run_id":"r","kind":"tool.call","data":{}}'),
    ("an id with a space", json.dumps(call("cmd 1"))),
    ("an id of 129 characters", json.dumps(call("x" * 129))),
    ("a reserved id", json.dumps(call("compensate:x"))),
    ("an id that is a number", '{"type":"command","command_id":1,"run_id":"r","kind":"tool.call","data":{}}'),
)

INVALID: tuple[tuple[str, Json, str], ...] = (
    ("an unknown kind", {"kind": "tool.guess"}, "unknown_kind"),
    ("a kind that is no string", {"kind": 7}, "invalid"),
    ("no data", {"data": None}, "invalid"),
    ("data that is a list", {"data": []}, "invalid"),
    ("a tool that is a number", {"data": {"tool": 1, "arguments": {}}}, "invalid"),
    ("arguments that are a list", {"data": {"tool": "counter/count", "arguments": []}}, "invalid"),
    (
        "a repeat that is a number",
        {"data": {"tool": "counter/count", "arguments": {}, "repeat": 1}},
        "invalid",
    ),
    ("a run id with a slash", {"run_id": "a/b"}, "invalid"),
    ("an expiry of zero", {"expires_in_ms": 0}, "invalid"),
    ("an expiry that is a fraction", {"expires_in_ms": 1.5}, "invalid"),
    ("delivered_to that is no list", {"delivered_to": "x"}, "invalid"),
    (
        "an unheard-of run",
        {"data": {"tool": "counter/count", "arguments": {}, "resumes": ["gone"]}},
        "unknown_run",
    ),
)


async def test_every_kind_of_garbage_is_answered_and_nothing_else_happens(zygote: Zygote) -> None:
    """Each malformed frame gets an `error` frame; the connection, the stream and the daemon go on."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.errors_expected = True
        life = made.start()
        await plane.connected()
        for number, (what, frame) in enumerate(GARBAGE, start=1):
            await plane.say(frame)
            complaints = await plane.complaints(number)
            assert len(complaints) == number, f"{what}: {complaints[-2:]}"
            assert complaints[-1]["message"], what
        await plane.give(call("cmd-1", n=1))
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert len(plane.hellos) == 1
        assert await life.stop() == 0
        assert list(plane.history.accepted) == ["cmd-1"]
        await must_hold(made)


async def test_a_command_that_can_never_be_right_is_refused_for_good(zygote: Zygote) -> None:
    """A malformed command with a usable id gets one `command.refused`, and executes nothing."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        plane.redelivers = False
        life = made.start()
        await plane.connected()
        for number, (what, changes, code) in enumerate(INVALID):
            command = {**call(f"bad-{number}", n=number), **changes}
            await plane.give(command)
            receipt = await plane.receipt_of(f"bad-{number}")
            assert receipt["kind"] == "command.refused", what
            assert receipt["data"]["code"] == code, f"{what}: {receipt['data']}"
            await plane.redeliver(f"bad-{number}")
        assert await life.stop() == 0
        assert made.effects() == []


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("nobody/count", {}, "unknown_tool"),
        ("counter/explode", {}, "unknown_tool"),
        ("counter", {}, "unknown_tool"),
        ("counter/count", {"n": "one"}, "invalid_arguments"),
    ],
)
async def test_a_call_that_cannot_be_made_is_not_executed(
    zygote: Zygote, tool: str, arguments: Json, reason: str
) -> None:
    """An unknown tool, or arguments that break its schema, end `not_executed` before anything is sent."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", tool, **arguments))
        receipt = await plane.receipt_of("cmd-1")
        assert (receipt["kind"], receipt["data"]["reason"]) == ("operation.not_executed", reason)
        assert "operation.started" not in plane.kinds("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)


async def test_an_oversize_frame_costs_the_connection_and_nothing_more(zygote: Zygote) -> None:
    """A frame above `max_frame_bytes` closes the socket with 1009; the daemon comes back, and works."""
    async with scripted_plane() as plane, sandbox(zygote, plane, control={"max_frame_bytes": 65_536}) as made:
        life = made.start()
        await plane.connected()
        await plane.say(call("cmd-big", label="x" * 70_000))
        await plane.until(lambda: plane.closes)
        assert plane.closes == [1009]
        await plane.give(call("cmd-1", n=1))
        await plane.connected()
        assert (await plane.receipt_of("cmd-1"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_result_that_is_too_large_for_the_plane_is_cut_and_flagged(zygote: Zygote) -> None:
    """An event is cut once to what the plane announced: a null result, `result_truncated`, the same chain."""
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("verbose_mcp.py")), "200000"]
    provider = {"kind": "mcp", "argv": argv}
    async with scripted_plane() as plane, sandbox(zygote, plane, providers__verbose=provider) as made:
        plane.max_frame_bytes = 65_536
        life = made.start()
        await plane.give(call("cmd-1", "verbose/speak"))
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.succeeded"
        assert receipt["data"]["result"] is None
        assert receipt["data"]["result_truncated"] is True
        await plane.redeliver("cmd-1")
        assert await life.stop() == 0


# --- a provider that does not start


@pytest.mark.parametrize(
    ("argv", "reasons"),
    [
        (["/nonexistent/server"], ("spawn_failed",)),
        (["/bin/false"], ("spawn_failed", "connect_failed")),
        (["/bin/echo", "not MCP"], ("spawn_failed", "connect_failed")),
    ],
)
async def test_a_provider_that_cannot_start_fails_its_calls_and_no_others(
    zygote: Zygote, argv: list[str], reasons: tuple[str, ...]
) -> None:
    """Nothing was sent, so the call is `not_executed`; the daemon and the other providers go on."""
    async with (
        scripted_plane() as plane,
        sandbox(zygote, plane, providers__broken={"kind": "mcp", "argv": argv}) as made,
    ):
        life = made.start()
        await plane.give(call("cmd-1", "broken/anything"), call("cmd-2", n=2))
        receipt = await plane.receipt_of("cmd-1")
        assert receipt["kind"] == "operation.not_executed"
        assert receipt["data"]["reason"] in reasons
        assert receipt["data"]["message"]
        assert (await plane.receipt_of("cmd-2"))["kind"] == "operation.succeeded"
        assert await life.stop() == 0
        await must_hold(made)


# --- a token that is no token


def absent(token: Path) -> None:
    """Remove the file."""
    token.unlink()


def emptied(token: Path) -> None:
    """Leave nothing but white space."""
    token.write_text(" \n")


def folder(token: Path) -> None:
    """Put something in its place that cannot be read as a file."""
    token.unlink()
    token.mkdir()


def two_lines(token: Path) -> None:
    """Smuggle a second header."""
    token.write_text(f"{TOKEN}\r\nX-Forged: 1\n")


@pytest.mark.parametrize("spoil", [absent, emptied, folder, two_lines])
async def test_without_a_token_the_daemon_says_so_and_keeps_trying(
    zygote: Zygote, spoil: Callable[[Path], None]
) -> None:
    """A token file that cannot be used is named in the log; once mended, the daemon connects by itself."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        spoil(made.token)
        life = made.start()
        await life.ready()
        await life.logged(str(made.token))
        if made.token.is_dir():
            made.token.rmdir()
        made.token.write_text(TOKEN + "\n")
        await plane.connected()
        assert TOKEN not in life.text
        assert await life.stop() == 0


async def test_a_refused_token_is_logged_and_does_not_end_the_daemon(zygote: Zygote) -> None:
    """After HTTP 401 the daemon backs off, goes on, and shows the token in no log line."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.token.write_text("wrong-token-of-the-tests\n")
        life = made.start()
        await plane.until(lambda: plane.refused_connections)
        await life.logged("401")
        link = (await made.status())["link"]
        assert link["connected"] is False
        assert "401" in link["last_error"]
        assert "wrong-token" not in link["last_error"]
        assert await life.stop() == 0
        assert "wrong-token" not in life.text


# --- a journal that is no journal of ours


def journal_file(made: Sandbox) -> Path:
    """Return the journal's file."""
    found = [path for path in made.state.iterdir() if path.is_file() and path.read_bytes()[:6] == b"SQLite"]
    assert len(found) == 1, found
    return found[0]


def foreign(file: Path) -> None:
    """Put another program's database there."""
    file.unlink()
    _sql(file, "CREATE TABLE bookmarks (url TEXT)")


def newer(file: Path) -> None:
    """Let a later version have written it."""
    _sql(file, "PRAGMA user_version = 9999")


def truncated(file: Path) -> None:
    """Cut it in the middle."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2 // 4096 * 4096])


def emptied_journal(file: Path) -> None:
    """Leave a file without a byte."""
    file.write_bytes(b"")


def text(file: Path) -> None:
    """Put something there that is no database."""
    file.write_text("dear diary\n" * 1000)


def missing(file: Path) -> None:
    """Take it away, and leave the folder that says there was one."""
    file.unlink()


def without_its_identity(file: Path) -> None:
    """Take away what says that the journal belongs to this folder."""
    (file.parent / "CURRENT").unlink()


def flipped(file: Path) -> None:
    """Flip bits where the last events are."""
    content = bytearray(file.read_bytes())
    place = content.rindex(b'"kind":"driver.st')
    content[place + 8] ^= 1
    file.write_bytes(content)


def _sql(file: Path, statement: str) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute(statement)
    connection.close()


def digests(made: Sandbox) -> dict[str, str]:
    """Return the digest of every file of the state folder but the lock."""
    files = [path for path in made.state.rglob("*") if path.is_file() and "lock" not in path.name.lower()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def one_call(made: Sandbox) -> Life:
    """Let one life leave a journal with a call in it."""
    assert made.plane is not None
    life = made.start()
    await made.plane.give(call("cmd-1", n=1))
    await made.plane.answered()
    assert await life.stop() == 0
    return life


@pytest.mark.parametrize(
    "spoil", [foreign, newer, truncated, emptied_journal, text, missing, without_its_identity, flipped]
)
async def test_a_journal_that_must_not_be_opened_is_left_as_it_is(
    zygote: Zygote, spoil: Callable[[Path], Any]
) -> None:
    """Exit code 2 at every start, one line that says what to do, and not a byte changed."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await one_call(made)
        file = journal_file(made)
        spoil(file)
        before = digests(made)
        for _ in range(2):
            life = made.start()
            assert await life.exit_code() == 2, life.text[-2000:]
            assert len(life.text.splitlines()) == 1, life.text
            assert str(made.state) in life.text
            assert digests(made) == before
        assert len(plane.hellos) == 1


async def test_a_rejection_in_any_words_does_not_end_the_daemon(zygote: Zygote) -> None:
    """The plane's code becomes the reason of our close, which has room for 123 bytes."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        rejection = {"type": "reject", "code": "\N{FIRE}" * 100, "message": "no"}
        plane.on_hello = lambda _hello, _history: rejection
        life = made.start()
        await plane.until(lambda: len(plane.hellos) == 2)
        assert await life.stop() == 0


async def test_a_journal_that_another_program_holds_is_refused(zygote: Zygote) -> None:
    """An open sqlite3 shell is a clear error, not a wait, and the next start works."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await one_call(made)
        shell = sqlite3.connect(journal_file(made), isolation_level=None)
        shell.execute("BEGIN EXCLUSIVE")
        life = made.start()
        assert await life.exit_code() == 2
        assert len(life.text.splitlines()) == 1, life.text
        shell.execute("ROLLBACK")
        shell.close()
        life = made.start()
        await plane.until(lambda: len(plane.hellos) == 2)
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_journal_copied_without_its_wal_is_refused(zygote: Zygote) -> None:
    """A killed life's newest commits are in the `-wal`: without it the rest must not pass for all."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        life = made.start()
        await plane.give(call("cmd-1", n=1))
        await plane.answered()
        await life.kill()
        logs = list(made.state.glob("*-wal"))
        assert len(logs) == 1
        shutil.move(logs[0], made.root / "wal")
        life = made.start()
        assert await life.exit_code() == 2
        assert len(life.text.splitlines()) == 1, life.text
        shutil.move(made.root / "wal", logs[0])
        life = made.start()
        await plane.until(lambda: len(plane.hellos) == 2)
        await plane.redeliver("cmd-1")
        assert await life.stop() == 0
        await must_hold(made)


async def test_a_work_folder_that_is_none_is_refused(zygote: Zygote) -> None:
    """Exit code 2 and a word about the path, before anything is recorded."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        await one_call(made)
        shutil.rmtree(made.state / "work")
        (made.state / "work").touch()
        life = made.start()
        assert await life.exit_code() == 2, life.text[-2000:]
        assert str(made.state / "work") in life.text.splitlines()[-1]
        assert len(plane.hellos) == 1
