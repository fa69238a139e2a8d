"""The frame of the command line: names, help, and one way to fail."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from driver.cli.main import COMMANDS, main
from driver.cli.packages import ForeignPackage, check_packages
from driver.config.load import load
from tests.cli_reference import commands

EFFECTD = Path(sys.executable).with_name("effectd")


def effectd(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the installed command as a real process, away from any terminal."""
    return subprocess.run(
        [EFFECTD, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def invoke_with(monkeypatch: pytest.MonkeyPatch, body: Callable[[], object]) -> Result:
    """Run a made-up subcommand `made-up` whose body is `body`."""

    @click.command()
    def made_up() -> None:
        body()

    monkeypatch.setattr(sys.modules[__name__], "made_up", made_up, raising=False)
    monkeypatch.setitem(COMMANDS, "made-up", (f"{__name__}:made_up", "Made up."))
    return CliRunner().invoke(main, ["made-up"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists(name: str) -> None:
    """Each line of the table names a command that can be imported, and says what it does."""
    target, line = COMMANDS[name]
    module, _, attribute = target.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.help
    assert line.endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_configuration(name: str) -> None:
    """`--config FILE` is an option of each command that needs to find state or sockets."""
    target = COMMANDS[name][0].partition(":")
    command = getattr(import_module(target[0]), target[2])
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--config" in options or name in {"plane", "demo", "conformance"}


def test_help_names_every_command_and_imports_none() -> None:
    """`effectd --help` costs as little as its own text."""
    program = (
        "import sys; sys.argv = ['effectd', '--help']\n"
        "from driver.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(name for name in sys.modules if name in "
        "{'pydantic', 'rich', 'httpx2', 'mcp', 'starlette', 'driver.daemon'}), sep=',')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    assert all(f"  {name} " in found for name in COMMANDS)
    assert found.splitlines()[-1] == ""


def test_help_has_a_line_for_each_command() -> None:
    """On a terminal of 80 columns each command stands on one line, and all of them in one column."""
    found = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.splitlines()
    lines = {line.split()[0]: line for line in found if line.startswith("  ") and line.split()[0] in COMMANDS}
    assert lines.keys() == COMMANDS.keys()
    assert all(line.endswith(COMMANDS[name][1]) for name, line in lines.items())
    assert len({line.index(COMMANDS[name][1]) for name, line in lines.items()}) == 1


def test_the_version_is_the_distributions() -> None:
    """`effectd --version` is one line with name and number."""
    done = effectd("--version")
    assert done.returncode == 0
    assert done.stdout.split()[0] == "effectd"


@pytest.mark.parametrize("arguments", [["nope"], ["check", "--nope"], ["check", "extra"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    """What was typed wrong is said on standard error, with where to find help."""
    done = effectd(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--help" in done.stderr


def test_a_command_that_was_almost_typed_is_named() -> None:
    """As click does for options."""
    assert "Did you mean 'ops'?" in CliRunner().invoke(main, ["opps"]).stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["xyzzy"]).stderr


def test_the_configuration_may_be_named_by_the_environment(tmp_path: Path) -> None:
    """Who types many commands names it once; the option wins."""
    named = {"EFFECTD_CONFIG": str(tmp_path / "from-environment.toml")}
    assert "from-environment.toml" in CliRunner().invoke(main, ["ops"], env=named).stderr
    assert "given.toml" in CliRunner().invoke(main, ["ops", "--config", "given.toml"], env=named).stderr


def test_a_missing_configuration_exits_2_in_one_line(tmp_path: Path) -> None:
    """No traceback: the file, and what to do."""
    done = effectd("run", "--config", str(tmp_path / "none.toml"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "there is no such file" in line


def test_a_configuration_error_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever command meets it."""
    result = invoke_with(monkeypatch, lambda: load(Path("/nowhere/effectd.toml")))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: /nowhere/effectd.toml: there is no such file")


def test_what_nobody_foresaw_is_called_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback is shown, then one line that asks for a report; the exit code is that of a bug."""
    nothing: dict[str, str] = {}
    result = invoke_with(monkeypatch, lambda: nothing["gone"])
    assert result.exit_code == 70
    lines = result.stderr.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("Error: KeyError is a bug in effectd: please report it")


def test_what_the_system_refuses_exits_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is no bug of ours."""
    result = invoke_with(monkeypatch, lambda: Path("/dev/full").write_text("x"))
    assert result.exit_code == 1
    assert result.stderr == "Error: [Errno 28] No space left on device; mend that, and try again\n"


def test_a_reader_that_went_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """`effectd ... | head` ends without a word."""

    def body() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    result = invoke_with(monkeypatch, body)
    assert result.exit_code == 1
    assert result.stderr == ""


def test_shells_complete_the_names_of_commands() -> None:
    """The names come from the table."""
    done = effectd(_EFFECTD_COMPLETE="bash_complete", COMP_WORDS="effectd che", COMP_CWORD="1")
    assert done.stdout == "plain,check\n"


def test_the_packages_are_ours() -> None:
    """The guard passes where all three packages stand side by side."""
    check_packages()


def test_a_foreign_package_stops_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution's `store` in place of ours exits 2, and names where it was found."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "store", raising=False)
    with pytest.raises(ForeignPackage, match=f"'store' comes from {tmp_path}"):
        check_packages()
    result = invoke_with(monkeypatch, lambda: None)
    assert result.exit_code == 2
    assert "a virtual environment of its own" in result.stderr


def test_a_closed_standard_output_is_no_bug_of_ours(tmp_path: Path) -> None:
    """What should have been written is not: 1, and one line, as where the disk is full."""
    config = tmp_path / "effectd.toml"
    config.write_text("")
    closed = 'exec "$0" "$@" >&-'
    done = subprocess.run(
        ["sh", "-c", closed, EFFECTD, "check", "--config", config],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("Error: [Errno 9] Bad file descriptor")


def test_no_help_is_wider_than_a_terminal() -> None:
    """Of 80 columns: whoever is woken has no other."""
    for path, _ in commands(main, "effectd"):
        shown = CliRunner().invoke(main, [*path.split()[1:], "--help"], terminal_width=80).stdout
        assert [line for line in shown.splitlines() if len(line) > 80] == [], path
