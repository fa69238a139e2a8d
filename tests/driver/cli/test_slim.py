"""What the daemon never uses is not in its memory, and is there for the commands that do use it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=120
    )
    return done.stdout.strip()


def test_the_daemon_does_without_rich() -> None:
    """Neither it nor pygments is loaded by `effectd run`, whatever kinds of providers there are."""
    kinds = ", ".join(f"driver.providers.{kind}.provider" for kind in ("mcp", "http", "command"))
    found = "{'rich', 'pygments'} & set(sys.modules)"
    code = f"import sys, driver.cli.main, driver.cli.run, {kinds}; print({found})"
    assert _run(code) == "set()"


def test_what_was_kept_out_can_still_be_imported() -> None:
    """A process that runs another command later draws its tables."""
    assert _run("import driver.cli.run, rich.table; print(rich.table.Table.__name__)") == "Table"


def test_what_is_loaded_already_stays() -> None:
    """Where rich came first nothing is taken away."""
    assert _run("import rich.table, driver.cli.run, sys; print('rich.table' in sys.modules)") == "True"
