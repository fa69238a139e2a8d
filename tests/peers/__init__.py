"""MCP servers that others wrote, as programs to run: from PyPI, and from npm (`make peers` fetches those)."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
BETWEEN: Final = HERE.parent / "servers" / "between.py"


def from_pypi(name: str) -> str:
    """Return the path of a program beside this interpreter."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    assert path is not None, f"{name} is not installed: pip install -e '.[test]'"
    return path


def from_npm(name: str) -> str:
    """Return the path of a program that `make peers` fetched.

    Where it is not there the test that asks fails, in continuous integration, and is skipped anywhere else.
    """
    path = HERE / "node_modules" / ".bin" / name
    if shutil.which("node") is not None and path.exists():
        return str(path)
    message = f"{name} needs node and npm on the PATH, and is fetched by `make peers`"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def from_path(name: str) -> str:
    """Return the path of a program that the machine has; where it has not, as `from_npm`."""
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not on the PATH"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def between(*options: str) -> list[str]:
    """Return the command line of `tests/servers/between.py`, for a server's to follow."""
    return [sys.executable, "-I", "-S", str(BETWEEN), *options, "--"]
