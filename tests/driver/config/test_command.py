"""Command providers in the configuration: what a program may be, and where it may run."""

from pathlib import Path
from typing import cast

import pytest

from driver.assembly import providers
from driver.config.errors import ConfigInvalid
from driver.config.load import parse
from driver.config.models import Config
from driver.core.attempts import Report
from driver.core.contracts import ArgumentKey
from driver.providers.command.provider import CommandProvider
from driver.providers.command.settings import CommandSettings, Program
from store.records import OperationId

DRIVER = '[driver]\nstate_dir = "/state"\n'
SHELL = DRIVER + '[providers.shell]\nkind = "command"\n'
RUN = "[providers.shell.tools.run]\n"


def parsed(text: str) -> Config:
    """Return the configuration that `text` is."""
    return parse(text, Path("/etc/effectd/effectd.toml"))


def never_late(operation_id: OperationId, attempt: int, report: Report) -> None:
    """Nobody calls anything here."""
    raise AssertionError((operation_id, attempt, report))


def settings(text: str) -> CommandSettings:
    """Return what the one provider of `text` is told."""
    (provider,) = providers(parsed(text), never_late).values()
    assert isinstance(provider, CommandProvider)
    return cast("CommandSettings", vars(provider)["_settings"])


def test_each_key_reaches_the_provider() -> None:
    """What the configuration says about a program is what the provider is told."""
    told = settings(
        SHELL
        + 'key = "argument:request_id"\ncwd = "/srv/a"\nroots = ["/srv"]\n'
        + 'env = { A = "x" }\nenv_files = { B = "y" }\n'
        + RUN
        + 'argv = ["git", "=arguments.verb"]\ncwd = "=arguments.cwd"\nstdin = { a = "=arguments.text" }\n'
        + "output_max_bytes = 9\nok_exit_codes = [0, 1]\n"
    )
    assert told == CommandSettings(
        name="shell",
        programs={
            "run": Program.declared(
                ["git", "=arguments.verb"],
                cwd="=arguments.cwd",
                stdin={"a": "=arguments.text"},
                output_bytes_max=9,
                ok_exit_codes=(0, 1),
            )
        },
        spool=Path("/state/spool"),
        cwd=Path("/srv/a"),
        roots=(Path("/srv"),),
        env={"A": "x"},
        env_files={"B": Path("/etc/effectd/y")},
        key=ArgumentKey("request_id"),
    )


@pytest.mark.parametrize(
    ("text", "cwd", "roots"),
    [
        ("", "/state/work", ["/state/work"]),
        ('roots = ["/srv"]\n', "/state/work", ["/srv", "/state/work"]),
        ('cwd = "/srv/a/.."\nroots = ["/home", "/srv/"]\n', "/srv", ["/home", "/srv"]),
        ('cwd = "/state/work/deep"\n', "/state/work/deep", ["/state/work"]),
    ],
)
def test_programs_run_in_the_work_folder_unless_it_is_said_where(
    text: str, cwd: str, roots: list[str]
) -> None:
    """Both keys have the state folder's `work/` as their default, and that one needs no declaration."""
    told = settings(SHELL + text)
    assert (told.cwd, told.roots) == (Path(cwd), tuple(Path(root) for root in roots))


@pytest.mark.parametrize(
    "text",
    [
        'cwd = "/srv"\n',
        'cwd = "/srv"\nroots = ["/srv/a", "/srvice"]\n',
        'cwd = "/srv/../home"\nroots = ["/srv"]\n',
    ],
)
def test_a_folder_outside_the_roots_is_a_contradiction(text: str) -> None:
    """No call could ever run there: the key is named, and what to do."""
    with pytest.raises(ConfigInvalid) as raised:
        parsed(SHELL + text)
    (only,) = raised.value.problems
    assert str(only).startswith('[providers.shell] cwd: found "/')
    assert "lies in none of the roots" in str(only)


def test_evidence_is_a_command_line_like_the_tool_s_own() -> None:
    """A list of words, or one expression that yields it; never a shell string."""
    found = settings(SHELL + RUN + 'argv = ["a"]\nevidence = ["git", "log", "=arguments.branch"]\n')
    evidence = found.programs["run"].evidence
    assert evidence is not None
    assert evidence.source == ["git", "log", "=arguments.branch"]
    with pytest.raises(ConfigInvalid):
        parsed(SHELL + RUN + 'argv = ["a"]\nevidence = "git log"\n')
