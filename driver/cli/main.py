"""The command `effectd`: its subcommands by name, and one way in which all of them fail.

Part of `driver.cli`. Imports nothing heavy: a subcommand's module is imported when it is called, so that help
and the reads start quickly.

Exit codes of every subcommand (`doctor` has its own): 0 done, 1 refused or unhealthy, 2 usage or
configuration, 3 daemon not reachable, 70 a bug of ours. An error is one line on standard error, with what to
do next; a configuration with several mistakes has one line for each.
"""

import difflib
import os
import sys
import traceback
from importlib import import_module
from io import FileIO, TextIOWrapper
from typing import Final

import click

from driver.cli.failures import Misconfigured, OurBug, SystemRefused
from driver.cli.packages import ForeignPackage, check_packages
from driver.config.errors import ConfigError

SECTIONS: Final = {
    # heading: the commands below it; name: (module and attribute, the line in `effectd --help`)
    "Start here": {
        "init": ("driver.cli.init:init", "Make a configuration from that of an MCP client."),
        "check": (
            "driver.cli.check:check",
            "Check the configuration; with --connect, its servers too.",
        ),
        "run": ("driver.cli.run:run", "Run the daemon."),
        "mcp": ("driver.cli.mcp:mcp", "Be an agent's one MCP server: the gateway, over stdio."),
        "demo": ("driver.cli.demo:demo", "Play the whole story in a minute, on real processes."),
    },
    "Look": {
        "status": ("driver.cli.status:status", "Show how the daemon is."),
        "ops": ("driver.cli.ops:ops", "List operations; --unsettled: what may have happened."),
        "show": ("driver.cli.ops:show", "Tell the whole story of one operation."),
        "runs": ("driver.cli.ops:runs", "List runs, and how much of each is unsettled."),
        "tail": ("driver.cli.tail:tail", "Show the journal's events; --follow: as they come."),
        "doctor": ("driver.cli.doctor:doctor", "Say whether everything is well, as an exit code."),
        "metrics": ("driver.cli.metrics:metrics", "Show the daemon's metrics, as OpenMetrics."),
    },
    "Settle what is open": {
        "approve": ("driver.cli.decisions:approve", "Let an operation run that waits for approval."),
        "deny": ("driver.cli.decisions:deny", "End an operation that waits for approval."),
        "probe": ("driver.cli.errands:probe", "Look in the provider whether an operation happened."),
        "reconcile": ("driver.cli.verdicts:reconcile", "Record what happened, once you have looked."),
        "retry": (
            "driver.cli.remedies:retry",
            "Call an operation again with the same key, where that is safe.",
        ),
        "compensate": ("driver.cli.remedies:compensate", "Take back what an operation, or a run, has done."),
        "annotate": ("driver.cli.verdicts:annotate", "Attach notes of your own to an operation."),
        "wall": ("driver.cli.triage:wall", "Show what a triage model would be shown of a run."),
        "triage": ("driver.cli.triage:triage", "Wake the supervisor for a run."),
    },
    "Look after the daemon and its journal": {
        "drain": ("driver.cli.drain:drain", "Stop the daemon without cutting off what runs."),
        "unfence": ("driver.cli.unfence:unfence", "Let a fenced daemon act again."),
        "verify": ("driver.cli.verify:verify", "Check that the journal is sound."),
        "backup": ("driver.cli.copies:backup", "Copy the journal into a file, verified."),
        "export": ("driver.cli.copies:export", "Write out every operation, as lines of JSON or a table."),
        "erase": ("driver.cli.erase:erase", "Erase the content of a run for good."),
        "dead-letters": (
            "driver.cli.dead_letters:dead_letters",
            "List the events that the plane did not take.",
        ),
        "requeue": ("driver.cli.dead_letters:requeue", "Report again what the plane did not take."),
    },
    "Beside effectd": {
        "plane": ("driver.cli.plane:plane", "Run the reference control plane, or tell it something."),
        "conformance": (
            "driver.cli.conformance:conformance",
            "Examine what an agent runtime does when tools or it fail.",
        ),
    },
}
"""Every subcommand, in the order of `effectd --help`. A new one is one line here, and its module."""
COMMANDS: Final = {name: command for section in SECTIONS.values() for name, command in section.items()}


class Effectd(click.Group):
    """A group whose commands are imported when they are called, and whose errors have stable exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, as the table has them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, None where there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where there is none of that name, say which one may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not near or args[0] in COMMANDS:
                raise
            message = f"{error.message} Did you mean {near[0]!r}?"
            raise click.UsageError(message, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, their columns side by side, and import nothing."""
        del ctx
        width = max(map(len, COMMANDS))
        for heading, section in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in section.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, and turn what it raises into one line and an exit code."""
        _have_an_output()
        _write_any_character()
        try:
            check_packages()
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except OSError as error:
            raise SystemRefused(error) from error
        except (ConfigError, ForeignPackage) as error:
            raise Misconfigured(error) from error
        except Exception as error:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise OurBug(error) from error


def _have_an_output() -> None:
    """Let what is written fail where standard output is closed, as on a full disk: Python has none then."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] - typeshed does not know
        nowhere = FileIO(os.open(os.devnull, os.O_RDONLY), "w")
        sys.stdout = TextIOWrapper(nowhere, encoding="utf-8", write_through=True)  # keeps nothing for the end


def _write_any_character() -> None:
    """Escape on standard output what its encoding has not, as Python does on standard error."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # pyright: ignore[reportUnknownMemberType]


@click.group(cls=Effectd, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="effectd", message="%(prog)s %(version)s")
def main() -> None:
    """Run an agent's tool calls so that one intended effect happens once.

    What cannot be known is called unknown, and kept until it is settled.

    \b
    effectd demo                     shows how that goes
    effectd init --from .mcp.json    puts your own agent's tools behind effectd

    Each command says more with --help. For shell completion put this into your shell's start file:
    eval "$(_EFFECTD_COMPLETE=bash_source effectd)", with zsh_source or fish_source for those shells.
    """  # noqa: D301 - click's mark of lines that it leaves as they are
