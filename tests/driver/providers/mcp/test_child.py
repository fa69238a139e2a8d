"""A server's process: what it is given, what it takes with it, and what ends it."""

import errno
import json
import os
import signal
import sys
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import anyio
import pytest

from driver.core.attempts import Answered, NotSent, Silence
from driver.log import configure
from driver.providers.environment import INHERITED
from driver.providers.mcp.child import Child, SpawnFailed
from driver.providers.mcp.settings import StdioServer
from store.records import JsonObject
from tests.driver.providers.mcp.stage import Stage, gone, is_running, program, staged, stdio

pytestmark = pytest.mark.anyio

DAEMON = """
import sys, anyio
from pathlib import Path
from driver.providers.mcp.child import Child
from driver.providers.mcp.settings import StdioServer

async def main():
    child = await Child.start("x", StdioServer(argv=tuple(sys.argv[1:]), cwd=Path.cwd()))
    print(child.pid, flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


async def structured(stage: Stage, mode: str) -> JsonObject:
    """Return what the hostile server tells about itself."""
    report = await stage.act(mode)
    assert isinstance(report, Answered)
    content = report.result["structuredContent"]
    assert isinstance(content, dict)
    return content


# ------------------------------------------------------------------ what it is given


@pytest.mark.parametrize(
    ("log_stderr", "text"),
    [(True, "begin [redacted] and [redacted], MODE=test"), (False, "51 bytes")],
    ids=["shown", "withheld"],
)
async def test_the_log_shows_no_value_of_the_environment(
    tmp_path: Path, *, log_stderr: bool, text: str
) -> None:
    """Servers print what they are given; where their calls hold secrets, only how much they print is told."""
    configure("debug", "json", stream := StringIO())
    (tmp_path / "token").write_text("s3cret-of-a-file")
    server = StdioServer(
        argv=("sh", "-c", "echo begin $TOKEN and $CANARY, MODE=$MODE >&2"),
        cwd=tmp_path,
        env={"CANARY": "canary-in-env", "MODE": "test"},
        env_files={"TOKEN": tmp_path / "token"},
        log_stderr=log_stderr,
    )
    child = await Child.start("x", server)
    try:
        with anyio.fail_after(30):
            await child.log_stderr()
    finally:
        await child.close(politely=True)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["text"] for line in lines if line["event"] == "server_stderr"] == [text]


async def test_a_child_gets_a_scrubbed_environment_and_what_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of ours but six harmless names; `env` and the content of `env_files` on top."""
    monkeypatch.setenv("EFFECTD_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    ledger = tmp_path / "ledger"
    server = stdio(
        "hostile_mcp.py", ledger, env={"MODE": "test", "HOME": "/nowhere"}, env_files={"TOKEN": token}
    )
    async with staged(server, ledger) as stage:
        told = await structured(stage, "environment")
    env = told["env"]
    assert isinstance(env, dict)
    assert (env["MODE"], env["TOKEN"], env["HOME"]) == ("test", "s3cret", "/nowhere")
    assert set(env) - {"MODE", "TOKEN", "LC_CTYPE"} <= set(INHERITED)
    assert told["cwd"] == str(tmp_path)


@pytest.mark.parametrize("made", [0, 1, 2])
async def test_a_start_that_runs_out_of_descriptors_leaves_none_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    """The pipes made before the one that failed are closed, and the start has failed."""
    pipes: list[tuple[int, int]] = []

    def pipe2(flags: int) -> tuple[int, int]:
        if len(pipes) == made:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        pipes.append(os.pipe())
        return pipes[-1]

    monkeypatch.setattr("driver.providers.mcp.child.os.pipe2", pipe2)
    with pytest.raises(SpawnFailed, match="Too many open files"):
        await Child.start("x", StdioServer(argv=("true",), cwd=tmp_path))
    assert len(pipes) == made
    for fd in (fd for pipe in pipes for fd in pipe):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


async def test_an_env_file_is_read_at_every_start(tmp_path: Path) -> None:
    """A rotated secret reaches the next process."""
    token = tmp_path / "token"
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, env_files={"TOKEN": token}), ledger) as stage:
        tokens: list[object] = []
        for secret in ("one", "two"):
            await anyio.Path(token).write_text(secret)
            env = (await structured(stage, "environment"))["env"]
            assert isinstance(env, dict)
            tokens.append(env["TOKEN"])
            await stage.act("dies-before")
    assert tokens == ["one", "two"]


# ------------------------------------------------------------------ what cannot be started


def refused(tmp_path: Path) -> Mapping[str, tuple[StdioServer, str]]:
    """Servers that cannot be started, and what the error says."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    empty = tmp_path / "empty"
    empty.touch()
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    missing = tmp_path / "missing"

    def with_file(path: Path) -> StdioServer:
        return StdioServer(argv=("sh",), cwd=tmp_path, env_files={"TOKEN": path})

    return {
        "no such program": (program(tmp_path, ["no-such-program"]), "no program 'no-such-program'"),
        "not executable": (program(tmp_path, ["./plain"]), "no program './plain'"),
        "no such cwd": (program(missing, ["sh"]), "is no folder"),
        "zero byte": (program(tmp_path, ["sh", "a\0b"]), "null byte"),
        "no such file": (with_file(missing), "env_files.TOKEN"),
        "empty file": (with_file(empty), "env_files.TOKEN"),
        "binary file": (with_file(binary), "not UTF-8"),
        "a folder": (with_file(tmp_path), "no regular file"),
        "a device": (with_file(Path("/dev/zero")), "no regular file"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "no such program",
        "not executable",
        "no such cwd",
        "zero byte",
        "no such file",
        "empty file",
        "binary file",
        "a folder",
        "a device",
    ],
)
async def test_what_cannot_be_started_is_not_sent(tmp_path: Path, what: str) -> None:
    """Spawn failed: the call ends before anything left, with a message that says what to mend."""
    server, words = refused(tmp_path)[what]
    async with staged(server, tmp_path / "ledger") as stage:
        assert stage.provider is not None
        report = await stage.provider.prepare(stage.call("any"))
    assert isinstance(report, NotSent)
    assert report.reason == "spawn_failed"
    assert words in report.message
    assert "provider stage" in report.message


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["true"], ""),
        (["sh", "-c", "echo hello; exit 3"], ""),
        (["sh", "-c", "read request; exit 3"], "the server ended with exit status 3 before it answered"),
        (["sh", "-c", "read request; yes"], "the server sent no JSON"),
        (["cat"], ""),
    ],
)
async def test_a_program_that_is_no_server_is_a_failed_connect(
    tmp_path: Path, argv: list[str], why: str
) -> None:
    """It started, and the handshake failed: nothing of the call left, and what it did instead is said."""
    async with staged(program(tmp_path, argv), tmp_path / "ledger") as stage:
        assert stage.provider is not None
        report = await stage.provider.prepare(stage.call("any"))
    assert isinstance(report, NotSent)
    assert report.reason == "connect_failed"
    assert report.message.endswith(why)


async def test_starts_that_keep_failing_are_refused_until_the_next_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the next try far away, a call is told so at once instead of being held."""

    def an_hour(_failures: int, _chance: float) -> float:
        return 3600.0

    monkeypatch.setattr("driver.providers.mcp.provider.delay_s", an_hour)
    async with staged(program(tmp_path, ["no-such-program"]), tmp_path / "ledger") as stage:
        assert stage.provider is not None
        first = await stage.provider.prepare(stage.call("any"))
        with anyio.fail_after(30):
            second = await stage.provider.prepare(stage.call("any"))
    assert isinstance(first, NotSent)
    assert isinstance(second, NotSent)
    assert "the next try is in 3600 s" in second.message
    assert first.message in second.message


# ------------------------------------------------------------------ what ends it


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same escalation, in less time."""
    monkeypatch.setattr("driver.providers.mcp.child.POLITE_EXIT_S", 0.2)
    monkeypatch.setattr("driver.providers.mcp.child.TERM_EXIT_S", 0.2)


async def test_closing_ends_what_the_server_started_as_well(tmp_path: Path) -> None:
    """A polite exit leaves grandchildren behind: the whole group is ended."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        told = await structured(stage, "spawn")
        assert isinstance(told["child"], int)
        assert is_running(told["child"])
    await gone(told["child"])


@pytest.mark.usefixtures("hurried")
async def test_a_server_that_ignores_everything_is_killed(tmp_path: Path) -> None:
    """The end of stdin, then SIGTERM, then SIGKILL."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger, "ignore-eof"), ledger) as stage:
        await stage.act("honest")
        (pid,) = stage.pids()
        began = anyio.current_time()
    assert not is_running(pid)
    assert anyio.current_time() - began >= 0.4


@pytest.mark.usefixtures("hurried")
async def test_cancelling_the_provider_leaves_nothing_behind(tmp_path: Path) -> None:
    """A daemon that is torn down ends its servers all the same."""
    ledger = tmp_path / "ledger"
    pids: set[int] = set()
    with anyio.CancelScope() as scope:
        async with staged(stdio("hostile_mcp.py", ledger, "ignore-eof"), ledger) as stage:
            await stage.act("honest")
            pids = stage.pids()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert [is_running(pid) for pid in pids] == [False]


async def test_a_server_dies_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves no time to end anything: the kernel does, even where the end of stdin is ignored."""
    ledger = tmp_path / "ledger"
    server = stdio("hostile_mcp.py", ledger, "ignore-eof")
    daemon = await anyio.open_process([sys.executable, "-c", DAEMON, *server.argv], cwd=os.fspath(Path.cwd()))
    async with daemon:
        assert daemon.stdout is not None
        pid = int(await daemon.stdout.receive())
        assert is_running(pid)
        with anyio.fail_after(30):
            while not ledger.exists():  # noqa: ASYNC110 - before the server runs, `setpriv` may not have run
                await anyio.sleep(0.01)
        daemon.send_signal(signal.SIGKILL)
        await daemon.wait()
    await gone(pid)


async def test_a_server_killed_by_somebody_else_is_a_lost_connection(tmp_path: Path) -> None:
    """The exit status says which signal it was."""
    ledger = tmp_path / "ledger"
    async with staged(stdio("hostile_mcp.py", ledger), ledger) as stage:
        await stage.act("honest")
        (pid,) = stage.pids()
        reports: list[object] = []

        async def one() -> None:
            reports.append(await stage.act("silent", timeout_s=60))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one)
                await anyio.wait_all_tasks_blocked()
                os.kill(pid, signal.SIGKILL)
        message = "the server ended with exit status -9 before it answered"
        assert reports == [Silence(cause="connection_lost", message=message)]
