"""Becomes a program: what a forked child of a shim, or of a leash, does last.

Part of `driver.providers.command.shim`; imports its `kernel` and `words`, and the standard library.
"""

import os
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from driver.providers.command.shim import kernel
from driver.providers.command.shim.words import Command

EXIT_NOT_EXECUTED: Final = 127
"""Of a child that did not become the program; nobody looks at it."""


class Surroundings(NamedTuple):
    """The descriptors that a program begins with."""

    cwd: int
    stdin: int
    stdout: int
    stderr: int


def become(command: Command, around: Surroundings, failure: int, released: Callable[[], bool]) -> NoReturn:
    """Execute the program in a session of its own, once it is `released`; it dies with its parent.

    Never returns: what fails is written to `failure`, which the kernel closes when the program is executed.
    """
    try:
        os.setsid()
        kernel.die_with_parent()
        if released():
            for target, source in enumerate((around.stdin, around.stdout, around.stderr)):
                os.dup2(source, target)
            os.fchdir(around.cwd)
            kernel.default_signals()
            os.execve(command.program, command.argv, command.env)  # noqa: S606 no shell, on purpose
    except BaseException as error:  # noqa: BLE001 untold, it would look like a program that ran
        why = error.strerror if isinstance(error, OSError) else None
        os.write(failure, (why or type(error).__name__).encode())
    finally:
        os._exit(EXIT_NOT_EXECUTED)
