"""`effectd check --connect`, against real servers."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers import counter_mcp

EFFECTD = Path(sys.executable).with_name("effectd")


def check(tmp_path: Path, text: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run the check as a real process, on `text` with a state folder that does not exist."""
    file = tmp_path / "effectd.toml"
    file.write_text(f'[driver]\nstate_dir = "state"\n{text}')
    return subprocess.run(
        [EFFECTD, "check", "--connect", "--config", file, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def counter(tmp_path: Path) -> str:
    """Return the table of the server that counts its effects in `tmp_path`/effects."""
    argv = [sys.executable, "-I", "-S", counter_mcp.__file__, str(tmp_path / "effects")]
    return f'[providers.counter]\nkind = "mcp"\nargv = {json.dumps(argv)}\n'


def tools(done: "subprocess.CompletedProcess[str]", provider: str) -> dict[str, Any]:
    """Return the tools of one provider by their names."""
    found = {item["name"]: item for item in json.loads(done.stdout)["providers"]}
    return {tool["name"]: tool for tool in found[provider]["tools"]}


def test_contracts_that_can_be_kept_exit_0(tmp_path: Path) -> None:
    """Undeclared tools are named, and are no failure."""
    done = check(tmp_path, counter(tmp_path) + "[providers.counter.tools.count]\n", "--json")
    assert done.returncode == 0, done.stderr
    served = tools(done, "counter")
    assert set(served) >= {"count", "fail", "slow"}
    assert served["count"] == {
        "name": "count",
        "declared": True,
        "served": True,
        "effect": "write",
        "findings": [],
    }
    assert [item["level"] for item in served["fail"]["findings"]] == ["notice"]


def test_how_to_see_why_a_server_does_not_answer_is_said_of_servers_that_were_started(tmp_path: Path) -> None:
    """What a server prints may hold secrets, and is not shown; one elsewhere cannot be started by hand."""
    started = check(tmp_path, '[providers.dead]\nkind = "mcp"\nargv = ["false"]\n')
    assert started.returncode == 1
    assert "dead: " in started.stdout
    assert "start it by hand" in started.stdout
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/mcp"
        elsewhere = check(tmp_path, f'[providers.far]\nkind = "mcp"\nurl = "{url}"\n')
    assert "far: " in elsewhere.stdout
    assert "start it by hand" not in elsewhere.stdout


def test_what_many_tools_have_in_common_is_said_once(tmp_path: Path) -> None:
    """A person reads a table, not the same sentence in each of its rows."""
    shown = check(tmp_path, counter(tmp_path)).stdout
    assert shown.count("not declared") == len(counter_mcp.TOOLS)
    assert shown.count("never repeated by itself") == 1


def test_asking_for_tools_calls_none_and_leaves_nothing(tmp_path: Path) -> None:
    """No effect happens, and neither state nor a folder for work is made beside the configuration."""
    check(tmp_path, counter(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"effectd.toml", "effects"}
    assert not (tmp_path / "effects").exists() or (tmp_path / "effects").read_text() == ""


def test_a_declared_tool_that_nobody_serves_exits_1(tmp_path: Path) -> None:
    """A contract for a misspelt name would protect nothing, and is an error."""
    done = check(tmp_path, counter(tmp_path) + "[providers.counter.tools.cuont]\n")
    assert done.returncode == 1
    assert "declared, and not served: did you mean count?" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("argv", [["no-such-program"], ["false"]])
def test_a_provider_that_cannot_be_started_exits_1(tmp_path: Path, argv: list[str]) -> None:
    """The others are asked all the same; the one that failed says why, without a traceback."""
    text = counter(tmp_path) + f'[providers.gone]\nkind = "mcp"\nargv = {json.dumps(argv)}\n'
    done = check(tmp_path, text, "--json")
    assert done.returncode == 1
    by_name = {item["name"]: item for item in json.loads(done.stdout)["providers"]}
    assert list(by_name) == ["counter", "gone"]
    assert by_name["counter"]["healthy"]
    assert not by_name["gone"]["healthy"]
    assert "gone" in by_name["gone"]["error"]
    assert "Traceback" not in done.stderr


def test_people_are_told_which_provider_cannot_be_asked(tmp_path: Path) -> None:
    """The text says the same as the JSON does."""
    done = check(tmp_path, '[providers.gone]\nkind = "mcp"\nargv = ["no-such-program"]\n')
    assert done.returncode == 1
    assert "error    gone: " in done.stdout
    assert "no-such-program" in done.stdout


def test_an_http_api_is_reached_and_not_called(tmp_path: Path) -> None:
    """A connection is made, and nothing sent: which requests an API takes, nobody can ask it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = http_api(listener.getsockname()[1])
        done = check(tmp_path, text, "--json")
        listener.settimeout(10)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1) == b""
    assert done.returncode == 0, done.stdout
    assert tools(done, "shop") == {
        "order": {"name": "order", "declared": True, "served": None, "effect": "write", "findings": []}
    }


def test_an_http_api_that_cannot_be_reached_exits_1(tmp_path: Path) -> None:
    """Where a call would end `not_executed/connect_failed`, the check says so beforehand."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = check(tmp_path, http_api(port))
    assert done.returncode == 1
    assert f"cannot connect to 127.0.0.1:{port}" in done.stdout


def http_api(port: int) -> str:
    """Return the table of an HTTP API on this port."""
    base = f'[providers.shop]\nkind = "http"\nbase_url = "http://127.0.0.1:{port}"\n'
    return base + '[providers.shop.tools.order]\npath = "/orders"\n'


def test_programs_are_looked_for_and_not_executed(tmp_path: Path) -> None:
    """What a call would find missing, the check finds beforehand; what only a call tells is left to it."""
    ran = tmp_path / "ran"
    text = (
        '[providers.shell]\nkind = "command"\n'
        f'[providers.shell.tools.touch]\nargv = ["touch", "{ran}"]\n'
        '[providers.shell.tools.any]\nargv = "=arguments.argv"\neffect = "read"\n'
        '[providers.shell.tools.gone]\nargv = ["no-such-program"]\n'
        '[providers.shell.tools.outside]\nargv = ["true"]\ncwd = "/"\n'
    )
    done = check(tmp_path, text, "--json")
    assert done.returncode == 1, done.stdout
    found = tools(done, "shell")
    assert {name: (tool["served"], tool["effect"]) for name, tool in found.items()} == {
        "any": (None, "read"),
        "gone": (None, "write"),
        "outside": (None, "write"),
        "touch": (None, "write"),
    }
    faults = {name: str(tool["findings"]) for name, tool in found.items() if tool["findings"]}
    assert faults.keys() == {"gone", "outside"}
    assert "argv[0] names no program on its PATH that may be run" in faults["gone"]
    assert "lies outside the declared roots" in faults["outside"]
    assert not ran.exists()


def test_a_public_server_is_understood(tmp_path: Path) -> None:
    """The official git server lists its tools to us."""
    argv = json.dumps([str(EFFECTD.with_name("mcp-server-git"))])
    text = f'[providers.git]\nkind = "mcp"\nargv = {argv}\n[providers.git.tools.git_log]\neffect = "read"\n'
    done = check(tmp_path, text, "--json")
    assert done.returncode == 0, done.stderr
    assert tools(done, "git")["git_log"]["effect"] == "read"
