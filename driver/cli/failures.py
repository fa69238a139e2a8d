"""How a command says that it could not do what was asked: a line on standard error, and a stable exit code.

Part of `driver.cli`; imports click only.

    click.ClickException
     ├── Misconfigured   2   the configuration, or the installation, cannot be used
     ├── SystemRefused   1   the operating system refused what the command needs
     └── OurBug         70   nobody expected this; the traceback stands above the line
"""

from typing import Final

import click

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 1
"""Refused, or unhealthy."""
EXIT_USAGE: Final = 2
"""Wrong usage, or a configuration that cannot be used."""
EXIT_UNREACHABLE: Final = 3
"""No daemon answers."""
EXIT_BUG: Final = 70
"""EX_SOFTWARE of sysexits.h."""


class Misconfigured(click.ClickException):
    """Nothing was started: `cause` says why, and what to do."""

    exit_code = EXIT_USAGE

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(str(cause))


class SystemRefused(click.ClickException):
    """The operating system refused what the command needs: a full disk, a forbidden file."""

    exit_code = EXIT_REFUSED

    def __init__(self, cause: OSError) -> None:
        self.cause = cause
        super().__init__(f"{cause}; mend that, and try again")


class OurBug(click.ClickException):
    """An exception that no part of effectd foresaw."""

    exit_code = EXIT_BUG

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(
            f"{type(cause).__name__} is a bug in effectd: please report it, "
            "with the lines above and the output of 'effectd --version'"
        )
