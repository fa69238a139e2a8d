"""A gate between a daemon and its plane, where a machine lets nobody build a network. Part of `network`.

It stands in for `countryside`, in the same words: what a network would drop waits at the gate, as a sender's
kernel would send it again and again, and passes when all is well once more, a connection's end included.
A lost packet is one that comes a moment later. What it cannot show is how the daemon's own kernel gives up.
"""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream

BYTES_S: Final = 8_000
"""Of a slow cable."""
CHUNK_BYTES: Final = 1_400
AGAIN_S: Final = 0.2
"""After which what was lost is sent again."""
HERE: Final = "127.0.0.1"
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass(slots=True, kw_only=True)
class Gate:
    """The way between a daemon and its plane. Made by `gate`."""

    number: int
    plane: str = HERE
    wrapper: Sequence[str] = ()
    _shares: dict[str, float] = field(default_factory=dict[str, float])
    _is_slow: bool = False
    _held: int = 0
    _healed: anyio.Event = field(default_factory=anyio.Event)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.number)

    def drop(self, *chains: str, share: float = 1.0) -> None:
        """Drop packets: OUTPUT, those of the daemon; INPUT, those to it."""
        self._shares = dict.fromkeys(chains, share)

    def slow_down(self) -> None:
        """Let either side send so many bytes a second, and no more."""
        self._is_slow = True

    def heal(self) -> None:
        """Drop nothing more, and be fast."""
        self._shares, self._is_slow, self._held = {}, False, 0
        self._healed.set()
        self._healed = anyio.Event()

    def dropped(self) -> int:
        """Return how many packets were dropped since the last healing."""
        return self._held

    @asynccontextmanager
    async def way(self, port: int) -> AsyncGenerator[int]:
        """Lead from a port of the gate's own, which is yielded, to this one."""

        async def pass_on(stream: SocketStream) -> None:
            async with stream:
                for chain in ("OUTPUT", "INPUT"):
                    await self._open(chain)
                with suppress(*_GONE):
                    async with await anyio.connect_tcp(HERE, port) as far, anyio.create_task_group() as both:
                        both.start_soon(self._carry, "OUTPUT", stream, far, both.cancel_scope)
                        both.start_soon(self._carry, "INPUT", far, stream, both.cancel_scope)

        async with (
            await anyio.create_tcp_listener(local_host=HERE) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, pass_on)
            yield int(listener.extra(SocketAttribute.local_port))
            tasks.cancel_scope.cancel()

    async def _carry(
        self, chain: str, source: SocketStream, sink: SocketStream, both: anyio.CancelScope
    ) -> None:
        try:
            while True:
                data = await source.receive(CHUNK_BYTES)
                await self._open(chain)
                if self._is_slow:
                    await anyio.sleep(len(data) / BYTES_S)
                await sink.send(data)
        except anyio.EndOfStream:
            await self._open(chain)
            with suppress(*_GONE):
                await sink.send_eof()
        except _GONE:
            await self._open(chain)
            both.cancel()

    async def _open(self, chain: str) -> None:
        """Return once what comes may pass."""
        while share := self._shares.get(chain):
            if share == 1.0:
                self._held += 1
                await self._healed.wait()
            elif self._chance.random() < share:
                self._held += 1
                await anyio.sleep(AGAIN_S)
            else:
                return
