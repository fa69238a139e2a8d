"""`effectd plane`: what people type, what they see, and the exit codes of both."""

import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest
from click.testing import CliRunner, Result

from driver.cli.main import main
from driver.cli.plane_views import show_command
from store.records import JsonObject

PROGRAM = "from driver.cli.main import main; main()"
KNOWN = ("send", "git/commit", "--run", "run-1", "--id", "cmd-1", "--args", '{"message":"x"}')


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A plane with the files that it makes for itself."""
    folder = tmp_path_factory.mktemp("state")
    command = [sys.executable, "-c", PROGRAM, "plane", "--listen", "127.0.0.1:0"]
    environment = {"XDG_STATE_HOME": str(folder), "PYTHONPATH": ":".join(sys.path)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as plane:
            assert plane.stdout is not None
            yield plane.stdout.readline().removeprefix("listening on ").strip()
            plane.terminate()
    state = folder / "effectd-plane"
    assert {path.name: S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {
        "plane.db": 0o600,
        "driver.token": 0o600,
        "operator.token": 0o600,
    }


def run(*arguments: str) -> Result:
    """Run `effectd plane …`."""
    return CliRunner().invoke(main, ["plane", *arguments])


def test_a_command_is_sent_and_listed(url: str) -> None:
    """What was sent is there, as a table and as JSON; sending it again changes nothing."""
    for _ in range(2):
        sent = run(*KNOWN, "--url", url)
        assert (sent.exit_code, sent.output) == (0, "cmd-1: queued\n")
    listed = run("commands", "--url", url, "--json")
    (item,) = json.loads(listed.output)["items"]
    assert item["data"] == {"tool": "git/commit", "arguments": {"message": "x"}}
    assert "cmd-1" in run("commands", "--url", url).output
    assert "queued" in run("commands", "cmd-1", "--url", url).output
    assert json.loads(run("runs", "--url", url, "--json").output)["items"][0]["state"] == "open"
    for command in ("receipts", "drivers"):
        assert json.loads(run(command, "--url", url, "--json").output)["items"] == []
        assert run(command, "--url", url).exit_code == 0


def test_every_option_of_send_reaches_the_command(url: str) -> None:
    """Repeat, resumes, the driver and the expiry; and other kinds with their data."""
    call = [
        "send",
        "a/b",
        "--run",
        "run-2",
        "--repeat",
        "--driver",
        "sbx-9",
        "--expires-ms",
        "5000",
        "--json",
    ]
    view = json.loads(run(*call, "--url", url).output)
    assert view["data"] == {"tool": "a/b", "arguments": {}, "repeat": True}
    assert view["driver_id"] == "sbx-9"
    end = run(
        "send", "--kind", "run.end", "--run", "run-2", "--data", '{"outcome":"done"}', "--url", url, "--json"
    )
    assert json.loads(end.output)["data"] == {"outcome": "done"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["send", "--run", "r"], 2, "name the TOOL"),
        (["send", "a/b", "--kind", "run.end", "--run", "r"], 2, "name the TOOL"),
        (["send", "a/b", "--run", "r", "--args", "[]"], 2, "object"),
        (["send", "a/b", "--run", "r", "--args", '{"a":1,"a":2}'], 2, "twice"),
        (["send", "a/b", "--run", "a b"], 2, "run_id"),
        (["send", "a/b", "--run", "r", "--id", "cmd-1"], 1, "conflict"),
        (["send", "a/b", "--run", "r", "--resumes", "run-1"], 1, "run_in_doubt"),
        (["commands", "nobody"], 1, "unknown_command"),
        (["runs", "--limit", "0"], 2, "--limit"),
        (["--db", "x", "runs"], 2, "--db is the server's"),
        (["--listen", "nowhere"], 2, "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], 2, "HOST:PORT"),
        (["--listen", "127.0.0.1:" + "9" * 5_000], 2, "HOST:PORT"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(url: str, arguments: list[str], code: int, said: str) -> None:
    """One line on standard error, and a stable exit code."""
    run(*KNOWN, "--url", url)
    placed = [*arguments] if arguments[0].startswith("--") else [*arguments, "--url", url]
    result = run(*placed)
    assert result.exit_code == code, result.output
    assert said in result.stderr


def test_without_a_plane_the_exit_code_is_three(url: str) -> None:
    """And the line says how to start one."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        result = run("runs", "--url", nobody)
    assert (result.exit_code, "effectd plane" in result.stderr) == (3, True)
    del url


def test_a_wrong_token_is_told_apart_from_a_missing_one(url: str, tmp_path: Path) -> None:
    """Both say which option names the file."""
    missing = run("runs", "--url", url, "--operator-token-file", str(tmp_path / "none"))
    assert (missing.exit_code, "--operator-token-file" in missing.stderr) == (2, True)
    (tmp_path / "token").write_text("wrong")
    for content in (b" \n", b"two words", b"\xe9t\xe9"):
        (tmp_path / "odd").write_bytes(content)
        odd = run("runs", "--url", url, "--operator-token-file", str(tmp_path / "odd"))
        assert (odd.exit_code, odd.stderr.startswith(f"Error: {tmp_path}/odd: ")) == (2, True)
    wrong = run("runs", "--url", url, "--operator-token-file", str(tmp_path / "token"))
    assert (wrong.exit_code, "token_wrong" in wrong.stderr) == (1, True)


def test_a_plane_that_cannot_start_says_why(url: str, tmp_path: Path) -> None:
    """A busy port, a busy or foreign file, an empty token: exit 2, and nothing of anybody is changed."""
    taken = url.removeprefix("http://")
    empty, foreign = tmp_path / "empty", tmp_path / "foreign.db"
    empty.write_text("\n")
    foreign.write_text("this is no database, but somebody's text")
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
        theirs.executescript("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1);")
    before = (tmp_path / "theirs.db").read_bytes()
    db = ["--db", str(tmp_path / "plane.db"), "--listen", "127.0.0.1:0"]
    for arguments, said in (
        (["--db", str(tmp_path / "other.db"), "--listen", taken], "cannot listen"),
        (["--listen", "127.0.0.1:0"], "another plane is using this file"),
        (["--listen", "127.0.0.1:0", "--db", str(foreign)], "choose another file"),
        (["--listen", "127.0.0.1:0", "--db", str(tmp_path / "theirs.db")], "no file of this version"),
        (["--listen", "127.0.0.1:0", "--db", str(tmp_path / "none" / "plane.db")], "No such file"),
        ([*db, "--token-file", str(empty)], "the file is empty"),
        ([*db, "--operator-token-file", str(tmp_path / "none")], "No such file"),
    ):
        result = run(*arguments)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert foreign.read_text().startswith("this is no database")
    assert (tmp_path / "theirs.db").read_bytes() == before


def test_a_receipt_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Why, what was said, what came back: nobody has to read the event for it; `--json` has it."""
    event = {
        "data": {"reason": "connection_lost", "message": "it ended", "result": {"id": 7}, "receipt": None}
    }
    view = {"command_id": "cmd-1", "state": "unknown", "effect": "unknown", "in_doubt": True}
    show_command({**view, "operation_id": "op_1", "receipt": event}, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "cmd-1: unknown, effect unknown; nobody knows yet whether its effect happened",
        "  operation   op_1",
        "  why         connection_lost: the connection to the provider broke before an answer came",
        "  message     it ended",
        '  result      {"id": 7}',
    ]


def test_a_call_may_serve_an_operation(url: str) -> None:
    """`--parent` names it."""
    call = ("send", "a/b", "--run", "run-4", "--parent", "op_" + "7" * 32, "--json")
    view = json.loads(run(*call, "--url", url).output)
    assert view["data"]["parent_operation_id"] == "op_" + "7" * 32


def test_a_file_of_commands_is_sent_whole_and_may_be_again(url: str, tmp_path: Path) -> None:
    """In its order; what was sent before is not sent twice."""
    commands: list[JsonObject] = [
        {"command_id": f"bulk-{n}", "run_id": "run-9", "kind": "run.cancel", "data": {}} for n in range(3)
    ]
    file = tmp_path / "commands"
    file.write_text("\n".join([*map(json.dumps, commands), ""]))
    for _ in range(2):
        done = run("send-all", str(file), "--url", url, "--json")
        assert done.exit_code == 0
        assert [item["command_id"] for item in json.loads(done.output)["items"]] == [
            "bulk-0",
            "bulk-1",
            "bulk-2",
        ]
    listed = json.loads(run("commands", "--run", "run-9", "--url", url, "--json").output)["items"]
    assert len(listed) == 3


@pytest.mark.parametrize(
    ("line", "fault"), [("{", "line 2"), ('{"run_id":"r"}', "no command_id"), ("[]", "line 2")]
)
def test_a_file_with_a_bad_line_is_not_sent_at_all(url: str, tmp_path: Path, line: str, fault: str) -> None:
    """Exit code 2, and which line."""
    file = tmp_path / "commands"
    good: JsonObject = {"command_id": "half-1", "run_id": "run-8", "kind": "run.cancel", "data": {}}
    file.write_text(f"{json.dumps(good)}\n{line}\n")
    done = run("send-all", str(file), "--url", url)
    assert done.exit_code == 2
    assert fault in done.stderr
    assert json.loads(run("commands", "--run", "run-8", "--url", url, "--json").output)["items"] == []
