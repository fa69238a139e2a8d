"""`effectd demo`: the story of one command, played on real processes, and counted.

Part of `driver.cli`; imports `driver.demo`.

    click.ClickException
     ├── DemoFailed       1   the story could not be played to its end
     └── DemoUnprepared   2   a program that it needs is not installed
"""

import sys
from typing import Final

import anyio
import click
from rich.console import Console

from driver.cli.failures import EXIT_REFUSED, EXIT_USAGE
from driver.cli.options import json_option
from driver.cli.output import write_json
from driver.demo.errors import DemoError, MissingProgram
from driver.demo.narrator import Narrator
from driver.demo.programme import INTERRUPTED, perform
from driver.demo.tally import exit_code, table

PIPE_COLUMNS: Final = 100
"""Of the table; other lines are never wrapped in a pipe."""


class DemoFailed(click.ClickException):
    """The story could not be played to its end."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: DemoError) -> None:
        self.cause = cause
        super().__init__(str(cause))


class DemoUnprepared(DemoFailed):
    """A program that the demo needs is not installed."""

    exit_code = EXIT_USAGE


@click.command()
@json_option
@click.pass_context
def demo(ctx: click.Context, *, as_json: bool) -> None:
    """Play the whole story in about a minute, on real processes.

    One commit through effectd; the same through a driver that remembers in memory, which commits twice; and
    again through effectd, killed at the worst moment. Then the way back: a probe finds the lost commit, a
    guess and a person settle what no probe can find, and a commit is taken back, once. What happened is
    counted in the repository itself: the exit code is 1 where a count is not as promised. Nothing is left
    behind.
    """
    try:
        played = anyio.run(perform, Narrator(_quiet_console() if as_json else _console()))
    except MissingProgram as error:
        raise DemoUnprepared(error) from error
    except DemoError as error:
        raise DemoFailed(error) from error
    if played.interrupted is not None:
        ctx.exit(INTERRUPTED + played.interrupted)
    if as_json:
        write_json(table(played.outcomes))
    ctx.exit(exit_code(played.outcomes))


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def _quiet_console() -> Console:
    """The story goes to a person who waits, and to nobody else."""
    return Console(stderr=True, highlight=False, quiet=not sys.stderr.isatty())
