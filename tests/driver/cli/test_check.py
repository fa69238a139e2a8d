"""`effectd check`, without its providers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from driver.cli.main import main

VALID = '[providers.p]\nkind = "mcp"\nargv = ["sh"]\n[providers.p.tools.t]\n'


def check(tmp_path: Path, text: str, *options: str) -> Result:
    """Run the check on the configuration `text`."""
    file = tmp_path / "effectd.toml"
    file.write_text(text)
    return CliRunner().invoke(main, ["check", "--config", str(file), *options])


def test_a_valid_configuration_exits_0(tmp_path: Path) -> None:
    """It says what was found, and how to look further; nothing was started."""
    result = check(tmp_path, VALID)
    assert result.exit_code == 0
    assert "is valid: 1 provider, 1 tool declared" in result.stdout
    assert "--connect" in result.stdout
    assert result.stderr == ""


def test_an_invalid_configuration_exits_2_with_every_mistake(tmp_path: Path) -> None:
    """One line for each mistake, on standard error."""
    result = check(tmp_path, "a = 1\nb = 2\n")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 3


def test_machines_get_the_mistakes_as_json(tmp_path: Path) -> None:
    """`--json` says the same as the text does, in fields."""
    result = check(tmp_path, "[driver]\nid = 1\n[gateway]\nport = 1\n", "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert (found["valid"], found["healthy"], found["providers"]) == (False, False, None)
    assert [(item["table"], item["key"]) for item in found["problems"]] == [
        ("driver", "id"),
        ("gateway", "port"),
    ]


def test_machines_get_an_unreadable_file_as_json(tmp_path: Path) -> None:
    """There is JSON on standard output whatever is wrong with the file."""
    result = CliRunner().invoke(main, ["check", "--json", "--config", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    (problem,) = json.loads(result.stdout)["problems"]
    assert problem["message"].startswith("there is no such file")


def test_a_check_that_asked_nobody_says_so(tmp_path: Path) -> None:
    """`providers` is null, not an empty list, where none was asked."""
    found = json.loads(check(tmp_path, VALID, "--json").stdout)
    assert found["valid"]
    assert found["healthy"]
    assert found["providers"] is None


def test_what_is_not_there_is_a_warning(tmp_path: Path) -> None:
    """Files and programs that are missing today do not make a configuration invalid."""
    (tmp_path / "empty").write_text("")
    (tmp_path / "folder").mkdir()
    text = (
        '[control]\nurl = "wss://h"\nscope = "s"\ntoken_file = "empty"\nca_file = "none.pem"\n'
        'client_cert_file = "folder"\n[providers.p]\nkind = "mcp"\nargv = ["no-such-program"]\n'
        'cwd = "nowhere"\nenv_files = { T = "empty/t" }\n[providers.r]\nkind = "mcp"\n'
        'url_file = "no-address"\nheader_files = { A = "no-header" }\n[providers.q]\nkind = "mcp"\n'
        'argv = ["./no-such-program"]\n'
    )
    result = check(tmp_path, text, "--json")
    assert result.exit_code == 0
    warned = json.loads(result.stdout)["warnings"]
    assert [(item["table"], item["key"]) for item in warned] == [
        ("control", "token_file"),
        ("control", "ca_file"),
        ("control", "client_cert_file"),
        ("providers.p", "env_files.T"),
        ("providers.r", "url_file"),
        ("providers.r", "header_files.A"),
        ("providers.p", "cwd"),
        ("providers.p", "argv"),
        ("providers.q", "argv"),
    ]
    assert [item["message"].partition(str(tmp_path))[0] for item in warned[:3]] == [
        "",
        "there is no file ",
        "",
    ]


def test_a_key_of_the_supervisor_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    """It is read at each use, so that it may come later; until then no model answers."""
    text = '[supervisor]\nmodel = "anthropic"\nmodel_name = "m"\napi_key_file = "key"\n' + VALID
    result = check(tmp_path, text)
    assert result.exit_code == 0
    warned = json.loads(check(tmp_path, text, "--json").stdout)["warnings"]
    assert [(item["table"], item["key"]) for item in warned] == [("supervisor", "api_key_file")]


def test_what_is_there_is_no_warning(tmp_path: Path) -> None:
    """A program in the search path and a file with something in it are fine."""
    (tmp_path / "token").write_text("secret")
    text = '[control]\nurl = "wss://h"\nscope = "s"\ntoken_file = "token"\n' + VALID
    assert json.loads(check(tmp_path, text, "--json").stdout)["warnings"] == []


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}])
def test_no_colour_goes_into_a_pipe(tmp_path: Path, environment: dict[str, str]) -> None:
    """Escape sequences are for terminals only."""
    file = tmp_path / "effectd.toml"
    file.write_text(VALID)
    result = CliRunner(env=environment).invoke(main, ["check", "--config", str(file)])
    assert "\x1b" not in result.stdout
