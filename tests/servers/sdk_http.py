"""An honest server made with the official SDK, over Streamable HTTP: `python sdk_http.py PORT LEDGER [json]`.

Its tool `count` appends a line to LEDGER and answers how many there are; `hold` does the same, waits until a
file is there, and answers with the number that it was given.
"""

import sys
from pathlib import Path

import anyio
from mcp.server import MCPServer

POLL_S = 0.01

server = MCPServer("counter")
ledger = Path(sys.argv[2])


def note(n: int) -> None:
    """One effect."""
    with ledger.open("a") as lines:
        lines.write(f"{n}\n")


@server.tool()
def count(n: int) -> int:
    """One effect."""
    note(n)
    return len(ledger.read_text().splitlines())


@server.tool()
async def hold(n: int, until: str) -> int:
    """One effect, and an answer once the file `until` is there."""
    note(n)
    while not await anyio.Path(until).exists():  # noqa: ASYNC110 - the kernel tells nobody
        await anyio.sleep(POLL_S)
    return n


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response="json" in sys.argv)
