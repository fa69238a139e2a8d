"""A real link with the real engine behind it, a plane that checks everything, and a cutter between them.

Part of `network`. All three live in one event loop, so that a point costs one connection. The pause before a
reconnect is skipped: each time the link draws how long it is, it is told to say hello at once.
"""

import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import cast
from urllib.parse import urlsplit

import anyio

from driver.link.link import Link
from driver.link.settings import LinkSettings
from tests.driver.engine.rig import SCOPE, Rig, ScriptedProvider, engine
from tests.driver.link.test_dial import certificate, server_context
from tests.faults.network.cutter import Cutter, cutter
from tests.system.plane import TOKEN, ScriptedPlane, scripted_plane

DEAD_AFTER_S = 10.0
assert SCOPE == "test", "the plane's own idea of the keys"


@dataclass(slots=True, kw_only=True)
class Station:
    """See the module. Made by `station`."""

    plane: ScriptedPlane
    cutter: Cutter
    rig: Rig
    link: Link
    folder: Path

    @property
    def connected(self) -> bool:
        """Whether the daemon was welcomed, and knows it."""
        return self.plane.is_connected and self.link.statistics().connected

    @property
    def whole(self) -> bool:
        """Whether all is answered and acknowledged, and both sides know it."""
        acked = self.plane.history.acked
        return (
            not self.plane.unanswered()
            and self.connected
            and acked == self.plane.history.last_seq
            and self.link.statistics().acked_seq == acked
        )

    async def settled(self) -> None:
        """Return once all is whole. Raises AssertionError when it never is."""
        await self.plane.until(lambda: self.whole)

    async def fired_or_whole(self, cuts: int = 1) -> int:
        """Return how many cuts have happened, once it is so many, or all is whole without them."""
        await self.plane.until(lambda: len(self.cutter.fired) >= cuts or self.whole)
        return len(self.cutter.fired)


@asynccontextmanager
async def station(
    folder: Path,
    *,
    tls: bool,
    plane: ScriptedPlane | None = None,
    relay: Callable[[tuple[str, int], Callable[[], None]], Cutter] = Cutter,
) -> AsyncGenerator[Station]:
    """Let a daemon connect through a cutter, with a journal of its own; nothing of it is left behind."""
    folder.mkdir(parents=True)  # noqa: ASYNC240 - in memory
    files = certificate(folder, "plane") if tls else None
    context: SSLContext | None = None if files is None else server_context(*files)
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "token").chmod(0o600)
    try:
        async with (
            scripted_plane(tls=context, plane=plane) as served,
            engine(folder, ScriptedProvider()) as rig,
        ):
            served.validates = False
            with cutter(relay(("127.0.0.1", port_of(served)), served.look_again)) as made:
                settings = LinkSettings(
                    url=f"{'wss' if tls else 'ws'}://127.0.0.1:{made.port}/driver",
                    token_file=folder / "token",
                    ca_file=None if files is None else files[0],
                    dead_after_s=DEAD_AFTER_S,
                )
                link = _link(settings, rig, served)
                async with anyio.create_task_group() as tasks:
                    await tasks.start(link.run)
                    yield Station(plane=served, cutter=made, rig=rig, link=link, folder=folder)
                    tasks.cancel_scope.cancel()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def port_of(plane: ScriptedPlane) -> int:
    """Return where the plane listens."""
    port = urlsplit(plane.url).port
    assert port is not None
    return port


def _link(settings: LinkSettings, rig: Rig, plane: ScriptedPlane) -> Link:
    def at_once() -> float:
        link.renew()
        return 0.0

    def notice(_boundary: str) -> None:
        plane.look_again()

    link = Link(
        settings=settings,
        journal=rig.journal,
        desk=rig.desk,
        software="effectd/test",
        clock=rig.clock,
        boundary=notice,
        chance=at_once,
    )
    return link


def leaves(error: BaseException) -> Iterator[str]:
    """Return an error, or each one of a group, in words."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield f"{type(error).__name__}: {error}"
