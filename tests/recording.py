"""Records the first five minutes of docs/gateway.md: `python -m tests.recording` writes docs/gateway.svg.

All that is shown is what real commands wrote to a terminal, one after the other, in a home folder of their
own. That folder has another name on each machine; here it is shown under one.
"""

import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.servers import mail_mcp
from tests.system.real import EFFECTD, PATIENCE_S, daemon

SVG: Final = Path(__file__).resolve().parents[1] / "docs" / "gateway.svg"
COLUMNS: Final = 100
"""About as many as a page has room for, so that the letters are as large as its own."""
HOME: Final = "/home/mia"
CONFIG: Final = ".effectd/effectd.toml"
TOKEN: Final = "tok-5f1d0c7e"

CLIENT: Final = f"""\
{{"mcpServers": {{"mail": {{
  "command": "python", "args": ["mail_mcp.py", "outbox"],
  "env": {{"MAIL_TOKEN": "{TOKEN}"}}
}}}}}}
"""
"""What the client has today."""

AGENT: Final = """\
import os

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ARGS = ["mcp", "--config", os.environ["EFFECTD_CONFIG"]]


async def main():
    async with Client(stdio_client(StdioServerParameters(command="effectd", args=ARGS))) as client:
        for _ in range(2):
            mail = {"to": "zoe@example.com", "subject": "Invoice 17"}
            told = await client.call_tool("mail__send_mail", mail)
            print("told:", told.content[0].text)


anyio.run(main)
"""
"""An agent that sends the same mail twice, as one does that has lost its place."""


class Recorder:
    """A terminal in a home folder, and all that was shown on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.variables: Mapping[str, str] = {
            "PATH": f"{home / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "EFFECTD_CONFIG": str(home / CONFIG),
        }
        self._screen = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)

    def types(self, command: str) -> str:
        """Run a command in a terminal, show it with what it writes, and return that."""
        self.shows(command)
        written = self._in_terminal(command).replace(str(self.home), HOME)
        self._screen.print(Text.from_ansi(written.rstrip()), highlight=False)
        return written

    def shows(self, command: str) -> None:
        """Show a command whose output goes elsewhere."""
        self._screen.print(Text.assemble(("\n$ ", "bold green"), (command, "bold")), highlight=False)

    def says(self, sentence: str) -> None:
        """Show a comment."""
        self._screen.print(Text(f"\n# {sentence}", style="bright_black"), highlight=False)

    def svg(self) -> str:
        """Return all of it as a picture that loads nothing from anywhere."""
        picture = self._screen.export_svg(title="the first five minutes", unique_id="effectd")
        return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)

    def _in_terminal(self, command: str) -> str:
        ours, theirs = os.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        with subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.home / "shop",
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            written = b"".join(iter(lambda: _read(ours), b""))
            os.close(ours)
            process.wait(PATIENCE_S)
        return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Return what comes next; a terminal that nobody holds any more has an error in place of an end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def furnish(home: Path) -> None:
    """Put a project with a client's file and an agent into the home folder, and programs beside it."""
    project = home / "shop"
    project.mkdir()
    (home / "bin").mkdir()
    (home / "bin" / "effectd").symlink_to(EFFECTD)
    python = home / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    shutil.copy(mail_mcp.__file__, project)
    (project / ".mcp.json").write_text(CLIENT, encoding="utf-8")
    (project / "agent.py").write_text(AGENT, encoding="utf-8")


def record(home: Path) -> str:
    """Play the first five minutes in `home`, which is empty, and return the picture."""
    furnish(home)
    terminal = Recorder(home)
    terminal.says("an agent's tools, as they are configured today")
    terminal.types("cat .mcp.json")
    terminal.says("the same servers behind effectd; the token goes to a file of its own")
    terminal.shows(f"export EFFECTD_CONFIG=~/{CONFIG}")
    terminal.types("effectd init --from .mcp.json")
    terminal.says("what it has made of the server: read it, change it")
    terminal.types("sed -n '/^.providers/,$p' $EFFECTD_CONFIG")
    terminal.shows("effectd run 2> effectd.log &")
    with daemon(home / CONFIG, home / "effectd.log", terminal.variables):
        terminal.says("an agent that sends the same mail twice")
        terminal.types("python agent.py")
        terminal.types("cat outbox")
        terminal.says("what happened, as it was written down before and after each call")
        terminal.types("effectd ops")
    return terminal.svg()


def main() -> None:
    """Write the picture of the page."""
    with tempfile.TemporaryDirectory(prefix="effectd-") as home:
        SVG.write_text(record(Path(home)), encoding="utf-8")


if __name__ == "__main__":
    main()
