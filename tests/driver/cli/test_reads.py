"""`status`, `ops`, `show`, `runs`: real processes against a real daemon's sockets."""

import json
import os
import pty
import socket
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from anyio import to_thread

from driver.cli.client import Door, Unreachable
from tests.driver.cli.desk import EFFECTD, Desk, desk_in, run, write_config
from tests.driver.local.world import operation_id

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Desk]:
    """One that succeeded, one that is lost, one that waits."""
    async with desk_in(tmp_path_factory.mktemp("desk")) as desk:
        await desk.world.succeed("cmd-1", run="run-a", result={"id": 7})
        await desk.world.lose("cmd-2", run="run-b")
        await desk.world.accept("cmd-3", run="run-b", tool="mail/send")
        yield desk


async def test_ops_unsettled_shows_the_lost_one_alone(desk: Desk) -> None:
    """What may have happened, why, and what to do next."""
    done = await desk.effectd("ops", "--unsettled")
    assert done.exit_code == 0
    assert "1 unsettled, newest first." in done.stdout
    assert operation_id("cmd-2") in done.stdout
    assert "MAY HAVE HAPPENED: nobody has said whether it did" in done.stdout
    assert "crash_window: the daemon died after the call may have left" in done.stdout
    assert f"effectd show {operation_id('cmd-2')} --config {desk.config}" in done.stdout
    assert operation_id("cmd-1") not in done.stdout


async def test_ops_is_a_table_with_whole_ids(desk: Desk) -> None:
    """Where nobody looks, nothing is wrapped: one line for each."""
    lines = (await desk.effectd("ops")).stdout.splitlines()
    assert lines[0].split() == ["OPERATION", "TOOL", "STATE", "EFFECT", "RUN", "ACCEPTED", "REASON"]
    assert [line.split()[0] for line in lines[1:]] == [operation_id(f"cmd-{number}") for number in (3, 2, 1)]


@pytest.mark.parametrize(
    ("arguments", "commands"),
    [
        (("--run", "run-b"), ["cmd-3", "cmd-2"]),
        (("--state", "succeeded"), ["cmd-1"]),
        (("--tool", "mail/send"), ["cmd-3"]),
        (("--effect", "occurred"), ["cmd-1"]),
        (("--reason", "crash_window"), ["cmd-2"]),
        (("--limit", "1"), ["cmd-3"]),
    ],
)
async def test_ops_filters(desk: Desk, arguments: tuple[str, ...], commands: list[str]) -> None:
    """Each filter of the API is an option; --json is the API's own page."""
    page = json.loads((await desk.effectd("ops", "--json", *arguments)).stdout)
    assert [item["command_id"] for item in page["items"]] == commands
    assert page["truncated"] is ("--limit" in arguments)


async def test_a_cursor_goes_on(desk: Desk) -> None:
    """The line under a page that is not the last can be typed."""
    done = await desk.effectd("ops", "--limit", "2")
    cursor = done.stdout.rsplit("--cursor ", 1)[1].strip()
    rest = await desk.effectd("ops", "--cursor", cursor, "--json")
    assert [item["command_id"] for item in json.loads(rest.stdout)["items"]] == ["cmd-1"]


@pytest.mark.parametrize("wanted", ["cmd-2", operation_id("cmd-2")])
async def test_show_takes_the_id_of_the_operation_or_of_its_command(desk: Desk, wanted: str) -> None:
    """An alarm of the plane names the command."""
    done = await desk.effectd("show", wanted)
    assert done.exit_code == 0
    assert done.stdout.startswith(operation_id("cmd-2"))
    assert "attempt 1: intent recorded (event 5)" in done.stdout
    assert "its receipt is event 6 (operation.unknown)" in done.stdout
    assert '{"title": "x"}' in done.stdout


async def test_show_as_json_is_the_whole(desk: Desk) -> None:
    """As the API has it."""
    told = json.loads((await desk.effectd("show", "cmd-1", "--json")).stdout)
    assert told["result"] == {"id": 7}


@pytest.mark.parametrize("name", ["..", ".", "op_mine", "a.b:c-d_e"])
async def test_whatever_a_plane_calls_a_command_or_a_run_can_be_named(tmp_path: Path, name: str) -> None:
    """Names of one or two dots are names, and `op_` may begin that of a command."""
    async with desk_in(tmp_path) as desk:
        await desk.world.lose(name, run=name)
        assert json.loads((await desk.effectd("show", name, "--json")).stdout)["command_id"] == name
        assert (await desk.effectd("wall", name)).exit_code == 0


async def test_a_command_that_was_refused_says_so(tmp_path: Path) -> None:
    """Its kind is not known any more: null, and no empty text. Why it was refused is one command away."""
    async with desk_in(tmp_path) as desk:
        await desk.world.refuse("cmd-1")
        told = (await desk.world.get("/v1/commands/cmd-1")).json()
        done = await desk.effectd("show", "cmd-1")
        why = await desk.effectd("tail", "--after", str(told["receipt_seq"] - 1))
    assert (told["kind"], told["accepted_seq"], told["receipt_kind"]) == (None, None, "command.refused")
    assert (done.exit_code, done.stdout) == (1, "")
    hint = f"see why with 'effectd tail --after {told['receipt_seq'] - 1}'"
    assert f"was refused, and nothing was called: {hint}" in done.stderr
    assert "run_ended" in why.stdout


async def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    """Where its encoding has no such character, as in an old locale: a story is told all the same."""
    async with desk_in(tmp_path) as desk:
        await desk.world.succeed("cmd-1", result="Zoë ☃")
        done = await to_thread.run_sync(_in_latin_1, desk.config)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Zo\xeb \\u2603" in done.stdout


def _in_latin_1(config: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*EFFECTD, "show", "cmd-1", "--config", config],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )


async def test_runs_and_status(desk: Desk) -> None:
    """Where something is unsettled it says how much."""
    lines = (await desk.effectd("runs")).stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["run-b", "2", "1"], ["run-a", "1", "0"]]
    status = await desk.effectd("status")
    assert status.stdout.startswith("effectd sbx-7 is ready\n  unsettled   1, the oldest for ")
    assert json.loads((await desk.effectd("status", "--json")).stdout)["driver_id"] == "sbx-7"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "text"),
    [
        (("show", "op_none"), 1, "this journal has no operation 'op_none'"),
        (("show", "none"), 1, "this journal has no command 'none'"),
        (("show", "a/../b"), 1, "this journal has no command"),
        (("show", ".."), 1, "this journal has no command '..'"),
        (("show", ""), 2, "an ID is empty"),
        (("wall", ".."), 1, "this journal has no run '..'"),
        (("ops", "--cursor", "x"), 2, "must be the `next` of an earlier page"),
        (("ops", "--run", "a b"), 2, "run: "),
        (("ops", "--limit", "501"), 2, "not in the range"),
        (("ops", "--reason", "because"), 2, "is not one of"),
        (("ops", "--state", "finished"), 2, "is not one of"),
    ],
)
async def test_a_refusal_has_its_exit_code(
    desk: Desk, arguments: tuple[str, ...], exit_code: int, text: str
) -> None:
    """1 refused, 2 usage; the error goes to standard error, and nothing to standard output."""
    done = await desk.effectd(*arguments)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert text in done.stderr


@pytest.mark.parametrize(
    "arguments", [("status",), ("ops",), ("show", "op_x"), ("runs",), ("tail",), ("tail", "--follow")]
)
def test_without_a_daemon_every_read_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 3, and how to start it."""
    config = write_config(tmp_path)
    done = run(config, *arguments)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "systemctl status effectd" in done.stderr
    assert f"effectd run --config {config}" in done.stderr


def test_a_stale_socket_is_no_daemon(tmp_path: Path) -> None:
    """What a kill left behind is not reached either."""
    config = write_config(tmp_path)
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(os.fspath(tmp_path / "run" / "inspect.sock"))
    done = run(config, "status")
    assert done.exit_code == 3
    assert "no daemon listens there" in done.stderr


@pytest.mark.parametrize(("name", "of_the_group"), [("inspect.sock", True), ("operator.sock", False)])
def test_who_may_open_a_socket_is_said_of_that_socket(tmp_path: Path, name: str, of_the_group: bool) -> None:
    """Being of the group helps with the one that is the group's, and not with the other."""
    door = Door(socket=tmp_path / name, config=tmp_path / "effectd.toml")
    said = Unreachable(door, PermissionError()).format_message()
    assert "run this as the daemon's user" in said
    assert ("group" in said) is of_the_group


def test_an_unusable_configuration_is_named(tmp_path: Path) -> None:
    """Exit code 2, before anything is asked."""
    config = tmp_path / "effectd.toml"
    config.write_text("[driver]\nruntime_dri = 1\n")
    done = run(config, "status")
    assert done.exit_code == 2
    assert "runtime_dri" in done.stderr


async def test_piped_output_has_no_colour(desk: Desk) -> None:
    """A real process, its output into a pipe."""
    done = await to_thread.run_sync(
        lambda: subprocess.run(
            [*EFFECTD, "ops", "--unsettled", "--config", desk.config], capture_output=True, check=True
        )
    )
    assert b"\x1b" not in done.stdout
    assert operation_id("cmd-2").encode() in done.stdout


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_a_terminal_has_colour_unless_it_is_not_wanted(
    desk: Desk, environment: dict[str, str], coloured: bool
) -> None:
    """A real process on a pseudo-terminal."""
    shown = await to_thread.run_sync(_on_terminal, desk.config, environment)
    assert operation_id("cmd-2") in shown
    assert ("\x1b[1;33m" in shown) is coloured


def _on_terminal(config: Path, environment: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    with subprocess.Popen(
        [*EFFECTD, "ops", "--unsettled", "--config", config],
        stdout=theirs,
        env={**plain, "TERM": "xterm", "COLUMNS": "200", **environment},
    ):
        os.close(theirs)
        found = b""
        try:
            while piece := os.read(ours, 65_536):
                found += piece
        except OSError:  # how a pseudo-terminal says that the other side is closed
            pass
    os.close(ours)
    return found.decode()
