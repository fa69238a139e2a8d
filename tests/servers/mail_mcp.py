"""A small MCP server over stdio that sends mail, as far as anybody can tell: each one is a line in a file.

Run it as `python mail_mcp.py FILE`, with MAIL_TOKEN in the environment: without one it does not start. Tools:

send_mail   appends `to: subject` to FILE
list_mails  returns the lines of FILE, and says that it only reads
"""

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("mail")


def outbox() -> Path:
    """Return where mails go."""
    return Path(sys.argv[1])


@server.tool()
def send_mail(to: str, subject: str) -> str:
    """Send a mail."""
    with outbox().open("a", encoding="utf-8") as file:
        file.write(f"{to}: {subject}\n")
    return f"sent to {to}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_mails() -> list[str]:
    """List what was sent."""
    return outbox().read_text(encoding="utf-8").splitlines() if outbox().exists() else []


if __name__ == "__main__":
    if not os.environ.get("MAIL_TOKEN"):
        sys.exit("MAIL_TOKEN is not set")
    server.run()
