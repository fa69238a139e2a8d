"""One sandbox with a plane and a shop, and lives in it that may be struck. Part of `kill points`."""

import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import httpx2
from anyio import to_thread

from tests.driver.providers.http.site import site
from tests.faults.kill_points.blows import FOLDERS, Blow, FileBlow, Points, Striker
from tests.faults.kill_points.relay import Relay
from tests.faults.kill_points.shop import Shop
from tests.faults.notifier import Supervisor
from tests.system.history import History, Json
from tests.system.plane import PATIENCE_S, Order, ScriptedPlane, scripted_plane
from tests.system.sandbox import Gone, Life, Sandbox, sandbox
from tests.system.zygote import Zygote

T = TypeVar("T")
HANG_S: Final = 10.0
"""So long nothing may fail to happen. A whole life takes a fraction of a second, with what is asked of it."""
CHANNEL: Final = "EFFECTD_FAULTS_CHANNEL"
ONLY: Final = "EFFECTD_FAULTS_CALL"
NOTES: Final = "EFFECTD_FAULTS_NOTES"
KILLED: Final = -signal.SIGKILL


class Hung(AssertionError):
    """Nothing happened for `HANG_S`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a scene begins with: the files, and what plane and shop remember."""

    files: Mapping[str, bytes]
    """By their path below the sandbox; a folder ends with a slash."""
    histories: Mapping[str, History]
    orders: Mapping[str, Order]
    hellos: tuple[Json, ...]
    shop: Shop


@dataclass(slots=True, kw_only=True)
class Stage:
    """See the module. Made by `stage`."""

    made: Sandbox
    plane: ScriptedPlane
    shop: Shop
    relay: Relay = field(default_factory=Relay)
    patience_s: float = HANG_S
    facts: set[str] = field(default_factory=set[str])
    """What an act has noted of itself: names of states that were reached."""

    async def order(self, *commands: Json) -> None:
        """Give those of the commands that no earlier life was given."""
        known = self.plane.orders
        await self.plane.give(*(command for command in commands if command["command_id"] not in known))

    async def live(self, act: "Act", blow: Blow | None = None, *, patch: str | None = None) -> Life:
        """Let a life begin, act, and stop; return it once it has ended, by the blow or by itself.

        `patch` names a mechanism that it lacks (`tests.system.patches`), unless the blow is one at a file.
        Raises `Hung`.
        """
        if isinstance(blow, FileBlow):
            assert patch is None, "one patch at a time"
            life = await self._watched(Striker(blow))
        else:
            life = self.made.start(kill_at=None if blow is None else str(blow), patch=patch)
        await self._lead(life, act)
        return life

    async def count(self, act: "Act") -> tuple[Points, Points]:
        """Let a life begin, act and stop; return where it could be killed, and where until its hello."""
        notes = self.made.root / "notes"
        notes.touch()
        supervisor: list[Supervisor] = []
        start: list[Points] = []

        def points() -> Points:
            return Points(
                calls=Counter(call.name for call in list(supervisor[0].calls)),
                boundaries=Counter(notes.read_text().split()),
            )

        async def noting(here: Stage) -> None:
            start.append(points())
            await act(here)

        life = await self._watched(Striker(None), supervisor)
        await self._lead(life, noting)
        assert life.code == 0, f"a life to which nothing was done ended {life.code}: {life.text[-3000:]}"
        found = points()
        notes.unlink()
        return found, start[0]

    async def _watched(self, striker: Striker, supervisors: list[Supervisor] | None = None) -> Life:
        path = self.made.root / f"channel-{len(self.made.lives)}"
        noting = {} if supervisors is None else {NOTES: str(self.made.root / "notes")}
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(PATIENCE_S)
            door.bind(str(path))
            door.listen()
            only = "" if striker.blow is None else striker.blow.call
            life = self.made.start(patch="asks_about_calls", **{CHANNEL: str(path), ONLY: only}, **noting)
            listener = await to_thread.run_sync(_listener, door)
        supervisor = Supervisor(life.pid, listener, str(self.made.root), striker, folders=FOLDERS)
        if supervisors is not None:
            supervisors.append(supervisor)
        # until the last process that was forked since is gone: others outlive a daemon
        self.made.tasks.start_soon(to_thread.run_sync, supervisor.serve)
        return life

    async def _lead(self, life: Life, act: "Act") -> None:
        hellos = len(self.plane.hellos)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._see_that_it_moves, life)
            async with anyio.create_task_group() as acting:
                acting.start_soon(_mourn, life, acting.cancel_scope)
                await self.plane.until(lambda: len(self.plane.hellos) > hellos and self._is_linked())
                await act(self)
                acting.cancel_scope.cancel()
            life.send(signal.SIGTERM)
            await life.ended.wait()
            tasks.cancel_scope.cancel()

    async def _see_that_it_moves(self, life: Life) -> None:
        while True:
            before = self._progress(life)
            await anyio.sleep(self.patience_s)
            if self._progress(life) == before:
                open_now = self.plane.unanswered()
                raise Hung(f"nothing for {self.patience_s:g} s; open: {open_now}: {life.text[-2000:]}")

    def _progress(self, life: Life) -> tuple[int, ...]:
        plane = self.plane
        answers = sum(len(order.answers) for order in plane.orders.values())
        events = sum(history.last_seq for history in plane.histories.values())
        return len(life.states), len(plane.hellos), events, plane.repeats.total(), answers

    def _is_linked(self) -> bool:
        return self.plane.is_connected

    # --- what acts need

    async def spoken(self, word: Awaitable[T]) -> T:
        """Return what a life says; one that has died is waited for in vain, whatever it said before."""
        try:
            return await word
        except (Gone, httpx2.TransportError, OSError):
            await anyio.sleep_forever()
            raise

    # --- templates

    def template(self) -> Template:
        """Return how everything stands, with no life running."""
        return Template(
            files=self.files(),
            histories=deepcopy(self.plane.histories),
            orders=deepcopy(self.plane.orders),
            hellos=tuple(deepcopy(self.plane.hellos)),
            shop=deepcopy(self.shop),
        )

    def take(self, template: Template) -> None:
        """Let everything stand so again."""
        self.put(template.files)
        self.plane.histories.update(deepcopy(dict(template.histories)))
        self.plane.orders.update(deepcopy(dict(template.orders)))
        self.plane.hellos.extend(deepcopy(template.hellos))
        self.shop.effects.update(template.shop.effects)
        self.shop.requests.update(template.shop.requests)

    def files(self) -> Mapping[str, bytes]:
        """Return the folders' content, by path below the sandbox; a folder ends with a slash."""
        return _read(self.made.root)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Let the folders hold this, and nothing else."""
        for name in FOLDERS:
            shutil.rmtree(self.made.root / name, ignore_errors=True)
        _write(self.made.root, files)

    # --- what really happened

    def executions(self) -> Counter[str]:
        """Return how often each key was executed, in the shop and by processes."""
        return self.shop.effects + self.made.executions()


Act: TypeAlias = Callable[[Stage], Awaitable[None]]
"""What is asked of a life, and waited for. The next is asked the same again: what was done is not redone."""

Tables: TypeAlias = Callable[[Sandbox, int], Mapping[str, Mapping[str, Any]]]
"""Returns the configuration, from the sandbox and the shop's port."""


async def _mourn(life: Life, cancel: anyio.CancelScope) -> None:
    await life.ended.wait()
    cancel.cancel()


def _listener(door: socket.socket) -> int:
    channel, _ = door.accept()
    with channel:
        _, (listener,), _, _ = socket.recv_fds(channel, 1, 1)
        return listener


def _read(root: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in (*FOLDERS, "ledger"):
        for path in (root / name, *sorted((root / name).rglob("*"))):
            relative = str(path.relative_to(root))
            if path.is_dir():
                found[relative + "/"] = b""
            elif path.is_file():
                found[relative] = path.read_bytes()
    return found


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(mode=0o700, exist_ok=True)
            continue
        with suppress(FileNotFoundError):
            path.unlink()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        if content:
            os.write(descriptor, content)
        os.close(descriptor)


@asynccontextmanager
async def stage(zygote: Zygote, tables: Tables) -> AsyncGenerator[Stage]:
    """Make a stage, and leave nothing of it behind."""
    shop = Shop()
    async with site(shop.answer) as api, scripted_plane() as plane, sandbox(zygote, plane) as made:
        made.configure(**tables(made, api.port))
        yield Stage(made=made, plane=plane, shop=shop)
