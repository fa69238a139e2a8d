"""An honest server made with the official SDK, over Streamable HTTP: `python sdk_http.py PORT LEDGER [json]`.

Its tool `count` appends a line to LEDGER and answers how many there are.
"""

import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("counter")
ledger = Path(sys.argv[2])


@server.tool()
def count(n: int) -> int:
    """One effect."""
    with ledger.open("a") as lines:
        lines.write(f"{n}\n")
    return len(ledger.read_text().splitlines())


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response="json" in sys.argv)
