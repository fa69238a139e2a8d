"""What a child process gets of an environment: a few variables of the daemon's own, and what is declared.

Part of `driver.providers`; imports nothing of ours.

    EnvironmentFileUnusable   a file of `env_files` cannot be a variable's value
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What a child gets of the daemon's environment; all else may be a secret."""
ENV_FILE_BYTES_MAX: Final = 65_536
"""What the content of an `env_files` entry may be at most."""


class EnvironmentFileUnusable(Exception):
    """The file at `path` cannot be the value of `variable`."""

    def __init__(self, variable: str, path: Path, detail: str) -> None:
        self.variable = variable
        self.path = path
        super().__init__(f"env_files.{variable}: {path} {detail}")


def environment(env: Mapping[str, str], env_files: Mapping[str, Path]) -> dict[str, str]:
    """Return the scrubbed environment with `env`, and with the content of each of `env_files`.

    Reads the files, so that a rotated secret is picked up: call it in a worker thread. Raises
    `EnvironmentFileUnusable`.
    """
    found = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return found | dict(env) | {name: _content(name, path) for name, path in env_files.items()}


def _content(name: str, path: Path) -> str:
    """Return the file's text, without one newline at its end."""
    try:
        text = _read(name, path).decode().removesuffix("\n")
    except OSError as error:
        raise EnvironmentFileUnusable(name, path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise EnvironmentFileUnusable(name, path, "is not UTF-8 text") from None
    if not text or "\0" in text:
        raise EnvironmentFileUnusable(name, path, "must hold text, and no zero byte")
    return text


def _read(name: str, path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EnvironmentFileUnusable(name, path, "is no regular file")
        if status.st_size > ENV_FILE_BYTES_MAX:
            raise EnvironmentFileUnusable(name, path, f"has more than {ENV_FILE_BYTES_MAX} bytes")
        return os.read(descriptor, ENV_FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
