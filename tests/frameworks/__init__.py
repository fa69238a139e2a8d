"""Agent frameworks that others wrote, each in an environment of its own: `make frameworks` makes them.

They cannot live beside effectd: langchain-mcp-adapters wants the MCP SDK before 2. NAME.txt says what is
installed; the versions are the ones that the published certificates are about.
"""

import os
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
ENVIRONMENTS: Final = HERE.parents[1] / ".frameworks"
NAMES: Final = tuple(sorted(path.stem for path in HERE.glob("*.txt")))


def interpreter(name: str) -> str:
    """Return the interpreter that has a framework.

    Where it is not there the test that asks fails, in continuous integration, and is skipped anywhere else.
    """
    path = ENVIRONMENTS / name / "bin" / "python"
    if path.exists():
        return str(path)
    message = f"{name} is installed by `make frameworks`"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
