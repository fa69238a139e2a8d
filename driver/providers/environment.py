"""What a child process gets of an environment: a few variables of the daemon's own, and what is declared.

Part of `driver.providers`; imports its `value_files`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from driver.providers.value_files import read_value

INHERITED: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What a child gets of the daemon's environment; all else may be a secret."""


def environment(env: Mapping[str, str], env_files: Mapping[str, Path]) -> dict[str, str]:
    """Return the scrubbed environment with `env`, and with the content of each of `env_files`.

    Reads the files, so that a rotated secret is picked up: call it in a worker thread. Raises
    `ValueFileUnusable`.
    """
    found = {name: os.environ[name] for name in INHERITED if name in os.environ}
    contents = {name: read_value(f"env_files.{name}", path) for name, path in env_files.items()}
    return found | dict(env) | contents
