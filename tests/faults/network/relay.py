"""A relay in a process of its own, which a signal can stop: `python -m tests.faults.network.relay HOST PORT`.

Part of `network`. The kernel goes on taking what is sent to it meanwhile. It prints its own port.
"""

import sys

import anyio

from tests.faults.network.cutter import Cutter, cutter


async def _relay(host: str, port: int) -> None:
    with cutter(Cutter((host, port))) as made:
        sys.stdout.write(f"{made.port}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(_relay, sys.argv[1], int(sys.argv[2]))
