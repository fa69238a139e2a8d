"""`effectd init --from FILE`, as a process: what it writes, what it says, and what never gets out."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from driver.cli.init import default_config
from driver.config.load import load
from driver.config.models import Config
from driver.config.providers import McpProviderTable
from tests.driver.importing.sources import CANARY, CLIENTS, VARIABLES
from tests.servers import counter_mcp

EFFECTD: Final = Path(sys.executable).with_name("effectd")
CLOSED: Final = "http://127.0.0.1:9/mcp"
"""Nobody listens on the discard port here."""


def init(
    tmp_path: Path,
    source: "Path | Mapping[str, Any] | str",
    *options: str,
    variables: Mapping[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Import a client's file, or servers, in an environment that holds nothing but `variables`."""
    if not isinstance(source, Path):
        text = source if isinstance(source, str) else json.dumps({"mcpServers": source})
        source = tmp_path / "client.json"
        source.write_text(text, encoding="utf-8")
    return subprocess.run(
        [EFFECTD, "init", "--from", source, "--config", tmp_path / "made" / "effectd.toml", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", **(variables or {})},
    )


def counter(tmp_path: Path, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return a server that really starts, as a client would write it."""
    args = ["-I", "-S", counter_mcp.__file__, str(tmp_path / "effects")]
    return {"command": sys.executable, "args": args, **more}


def made(tmp_path: Path) -> Config:
    """Return what was written, which must be valid."""
    return load(tmp_path / "made" / "effectd.toml")


def all_files(folder: Path) -> Iterator[Path]:
    """Yield every file below."""
    return (path for path in folder.rglob("*") if path.is_file())


def test_a_client_that_works_becomes_a_configuration_that_does(tmp_path: Path) -> None:
    """Exit 0; the block for the client, and what to type next; and `check --connect` agrees."""
    done = init(tmp_path, {"counter": counter(tmp_path, env={"TOKEN": CANARY})})
    assert done.returncode == 0, done.stderr
    config = made(tmp_path)
    provider = config.providers["counter"]
    assert isinstance(provider, McpProviderTable)
    assert provider.env_files == {"TOKEN": tmp_path / "made" / "effectd.secrets" / "counter.TOKEN"}
    assert config.driver.state_dir == tmp_path / "made" / "state"
    assert "\\n" not in done.stdout, "each line is one"
    block = json.loads(done.stdout[done.stdout.index("\n{") : done.stdout.rindex("\n}") + 2])
    entry = block["mcpServers"]["effectd"]
    assert Path(entry["command"]).name == "effectd"
    assert entry["args"] == ["mcp", "--config", str(tmp_path / "made" / "effectd.toml")]
    assert f"export EFFECTD_CONFIG={tmp_path / 'made' / 'effectd.toml'}" in done.stdout
    checked = subprocess.run(
        [EFFECTD, "check", "--connect", "--config", tmp_path / "made" / "effectd.toml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_asking_for_tools_calls_none_and_leaves_no_state(tmp_path: Path) -> None:
    """Nothing happens but what the page says: one file, and one folder of secrets."""
    init(tmp_path, {"counter": counter(tmp_path)})
    assert (tmp_path / "effects").read_text() == ""
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"effectd.toml"}


def test_everything_is_private(tmp_path: Path) -> None:
    """Whatever the umask; and the folder of secrets, too."""
    init(tmp_path, {"a": {"url": CLOSED, "headers": {"X": CANARY}}}, "--no-connect")
    secrets = tmp_path / "made" / "effectd.secrets"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in all_files(tmp_path / "made")} == {0o600}


@pytest.mark.parametrize("name", ["plain.json", "project/.editor/mcp.json", "server-url.json", "tables.toml"])
def test_no_secret_gets_into_the_configuration_or_the_output(tmp_path: Path, name: str) -> None:
    """Secrets are in the files for secrets, and nowhere else."""
    done = init(tmp_path, CLIENTS / name, "--no-connect", variables=VARIABLES)
    assert done.returncode in {0, 1}, done.stderr
    assert CANARY not in done.stdout + done.stderr
    with_canary = {file for file in all_files(tmp_path / "made") if CANARY in file.read_text()}
    secrets = tmp_path / "made" / "effectd.secrets"
    assert all(file.parent == secrets for file in with_canary)
    assert made(tmp_path).providers


def test_servers_that_do_not_answer_are_written_with_why_and_without_their_secrets(tmp_path: Path) -> None:
    """Exit 1: all is there, and something is left to do; the others have their contracts."""
    leaky = (
        'import os, sys; print(os.environ["TOKEN"], sys.argv, file=sys.stderr); sys.exit(os.environ["TOKEN"])'
    )
    servers = {
        "counter": counter(tmp_path),
        "gone": {"command": "no-such-program", "args": ["--verbose"]},
        "far": {"url": f"{CLOSED}?key={CANARY}", "headers": {"Authorization": f"Bearer {CANARY}"}},
        "loud": {
            "command": sys.executable,
            "args": ["-c", leaky, f"--key={CANARY}"],
            "env": {"TOKEN": CANARY},
        },
    }
    done = init(tmp_path, servers)
    assert done.returncode == 1
    assert set(made(tmp_path).providers) == set(servers)
    text = (tmp_path / "made" / "effectd.toml").read_text()
    assert "there is no program 'no-such-program'" in " ".join(text.replace("\n# ", " ").split())
    assert text.count("# It did not answer when it was imported:") == 3
    assert CANARY not in text + done.stdout + done.stderr
    assert "no answer" in done.stdout


def test_what_cannot_be_taken_over_is_said_and_exits_1(tmp_path: Path) -> None:
    """The older transport is no provider; what is switched off is no failure."""
    off = {"off": {"command": "x", "disabled": True}}
    assert init(tmp_path, off).returncode == 0
    done = init(tmp_path, {**off, "old": {"type": "sse", "url": "https://h/x"}}, "--force")
    assert done.returncode == 1
    assert "HTTP+SSE" in done.stdout
    assert not made(tmp_path).providers


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    """Neither the configuration nor a secret; and nothing else is left behind by the refusal."""
    servers = {"a": {"command": "x", "env": {"TOKEN": CANARY}}}
    assert init(tmp_path, servers, "--no-connect").returncode == 0
    before = {path: path.read_bytes() for path in all_files(tmp_path / "made")}
    servers["a"]["env"] = {"TOKEN": "new", "OTHER": "new"}
    refused = init(tmp_path, servers, "--no-connect")
    assert refused.returncode == 2
    assert "exists already, and nothing was written" in refused.stderr
    assert {path: path.read_bytes() for path in all_files(tmp_path / "made")} == before
    (tmp_path / "made" / "effectd.toml").unlink()
    assert init(tmp_path, servers, "--no-connect").returncode == 2
    assert init(tmp_path, servers, "--no-connect", "--force").returncode == 0
    assert (tmp_path / "made" / "effectd.secrets" / "a.TOKEN").read_text() == "new\n"


def test_a_file_with_mistakes_writes_nothing_and_names_all(tmp_path: Path) -> None:
    """Exit 2, one line for each, no traceback."""
    done = init(tmp_path, {"a": {"command": 1, "args": 2}, "b": {"command": "${NOWHERE_TO_BE_FOUND}"}})
    assert done.returncode == 2
    assert "3 problems" in done.stderr
    assert "NOWHERE_TO_BE_FOUND is not set" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "made").exists()


def test_a_file_of_variables_that_is_missing_is_a_mistake(tmp_path: Path) -> None:
    """A server would start without what it needs; which one it is, and what to do, is said."""
    done = init(tmp_path, {"a": {"command": "x", "envFile": "${workspaceFolder}/none.env"}})
    assert done.returncode == 2
    assert "[mcpServers.a] envFile: " in done.stderr
    assert "none.env: there is no such file; name one that is there" in done.stderr
    assert "--skip" in done.stderr


def test_what_the_client_would_ask_for_comes_from_the_environment(tmp_path: Path) -> None:
    """It is told which variable is meant, and then it works."""
    source = CLIENTS / "servers-and-inputs.json"
    refused = init(tmp_path, source, "--no-connect")
    assert refused.returncode == 2
    assert "'perplexity-key' (Perplexity API Key): set PERPLEXITY_KEY" in refused.stderr
    done = init(tmp_path, source, "--no-connect", variables={"PERPLEXITY_KEY": CANARY})
    assert done.returncode == 0
    assert '"servers"' in done.stdout


def test_folders_and_the_run_are_where_one_says(tmp_path: Path) -> None:
    """The lines for the client follow."""
    options = ("--state-dir", str(tmp_path / "s"), "--runtime-dir", str(tmp_path / "r"), "--run", "mine")
    done = init(tmp_path, {"a": {"command": "x"}}, "--no-connect", *options)
    driver = made(tmp_path).driver
    assert (driver.state_dir, driver.runtime_dir) == (tmp_path / "s", tmp_path / "r")
    assert '"--run",\n        "mine"' in done.stdout


def test_without_a_name_for_the_configuration_it_goes_to_the_users_own_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`~/.config`, or where the environment says that such files are kept; for root the system's."""
    monkeypatch.setenv("HOME", "/home/mia")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_config() == Path("/home/mia/.config/effectd/effectd.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/mia/conf")
    assert default_config() == Path("/home/mia/conf/effectd/effectd.toml")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_config() == Path("/etc/effectd/effectd.toml")


def test_the_environment_may_name_the_configuration(tmp_path: Path) -> None:
    """As it does for every other command; state and sockets get their places beside it."""
    named = tmp_path / "named" / "mine.toml"
    source = tmp_path / "client.json"
    source.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"TOKEN": CANARY}}}}))
    done = subprocess.run(
        [EFFECTD, "init", "--from", source, "--no-connect"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EFFECTD_CONFIG": str(named)},
    )
    assert done.returncode == 0, done.stderr
    driver = load(named).driver
    assert (driver.state_dir, driver.runtime_dir) == (named.parent / "state", named.parent / "run")
    assert (named.parent / "mine.secrets" / "a.TOKEN").read_text().strip() == CANARY
    assert {path.name for path in tmp_path.iterdir()} == {"named", "client.json"}


def test_a_folder_whose_sockets_would_have_too_long_a_path_is_refused_before_anything(tmp_path: Path) -> None:
    """As the daemon would refuse it."""
    done = init(tmp_path, {"a": {"command": "x"}}, "--runtime-dir", str(tmp_path / ("r" * 120)))
    assert done.returncode == 2
    assert "[driver] runtime_dir: too long" in done.stderr
    assert not (tmp_path / "made").exists()


def test_trusted_annotations_become_contracts(tmp_path: Path) -> None:
    """Only where a person said so: the public server for times says of its tools that they read."""
    servers = {"time": {"command": str(EFFECTD.with_name("mcp-server-time"))}}
    assert init(tmp_path, servers).returncode == 0
    assert not made(tmp_path).providers["time"].tools
    assert init(tmp_path, servers, "--force", "--trust-annotations").returncode == 0
    tools = made(tmp_path).providers["time"].tools
    assert {name: tool.effect for name, tool in tools.items()} == {
        "convert_time": "read",
        "get_current_time": "read",
    }
