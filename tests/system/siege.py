"""A daemon with every hostile server at once, and the kills that come on top.

One siege is one sandbox: all cases are provoked together, something is killed (or nothing), whoever is left
or comes next ends what is open, everything is delivered again, and all must add up.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import anyio

from tests.driver.providers.mcp.web import Web
from tests.system.audit import must_hold
from tests.system.campaign import KILLED
from tests.system.history import Json
from tests.system.hostility import HURRIED_S, STDIO_CASES, SUCCEEDED, TOO_LATE, Case
from tests.system.hostility_http import HTTP_CASES, HttpCase
from tests.system.plane import PATIENCE_S, ScriptedPlane, scripted_plane
from tests.system.sandbox import Life, Sandbox, sandbox
from tests.system.zygote import Zygote

SEED: Final = 20261129
CRASHED: Final = "operation.unknown/crash_window"
NOT_STARTED: Final = "operation.not_executed/connect_failed"
CASES: Final[Sequence[Case]] = (*STDIO_CASES, *HTTP_CASES)


def outcome(receipt: Json) -> str:
    """Return a receipt's kind, with its reason where it has one."""
    reason = receipt["data"].get("reason")
    return f"{receipt['kind']}/{reason}" if reason else str(receipt["kind"])


@dataclass(slots=True)
class Toll:
    """What was counted over all sieges of a session."""

    cells: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    begun: int = 0
    sieges: int = 0
    servers_killed: int = 0
    daemons_killed: int = 0
    effects: int = 0
    twice: int = 0
    late: int = 0
    receipts: Counter[str] = field(default_factory=Counter[str])
    crashed_in: set[str] = field(default_factory=set[str])
    """The cases that a daemon died in the middle of."""
    slowest_s: float = 0.0

    def __str__(self) -> str:
        """One line for a report."""
        receipts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.receipts.items()))
        return (
            f"{len(self.cells)} cells of case and kill in {self.sieges} sieges, "
            f"{self.servers_killed} servers and {self.daemons_killed} daemons killed, "
            f"{self.effects} effects, {self.twice} of them twice, "
            f"{self.receipts.total()} receipts ({receipts}), daemons died in {len(self.crashed_in)} cases, "
            f"{self.late} late answers, the last receipt after {self.slowest_s:.1f} s"
        )


@dataclass(slots=True, kw_only=True)
class Siege:
    """See the module. Made by `siege`."""

    made: Sandbox
    plane: ScriptedPlane
    toll: Toll
    cases: Sequence[Case]
    webs: Mapping[str, Web]
    """The servers of the cases over HTTP."""
    began: float = field(default_factory=monotonic)

    @property
    def by_name(self) -> Mapping[str, Case]:
        """The cases of this siege."""
        return {case.name: case for case in self.cases}

    @property
    def life(self) -> Life:
        """The newest life."""
        return self.made.lives[-1]

    # --- kills

    async def servers_once(self, seen: Callable[[], set[str]], delay_s: float) -> None:
        """Kill each case's server `delay_s` after `seen` names the case; end when all were seen, or ended."""
        async with anyio.create_task_group() as tasks:
            begun: set[str] = set()
            while not self._over(begun):
                for name in sorted(seen() - begun):
                    tasks.start_soon(self._server_after, name, delay_s)
                    begun.add(name)
                await self.plane.until(lambda: seen() - begun or self._over(begun))

    def _over(self, begun: set[str]) -> bool:
        return not set(self.plane.unanswered()) - begun

    async def _server_after(self, name: str, delay_s: float) -> None:
        await anyio.sleep(delay_s)
        self.server(name)

    def server(self, name: str) -> None:
        """Kill the server of a case, as a power switch would, where it is there."""
        if name in self.webs:
            self.webs[name].stop()
            self.toll.servers_killed += 1
            return
        mark = f"\0{self.by_name[name].mark}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                if mark in command and os.fsencode(self.made.ledger) in command:
                    os.kill(int(process.name), signal.SIGKILL)
                    self.toll.servers_killed += 1

    async def daemon(self) -> None:
        """Kill the daemon."""
        await self.life.kill()
        self.toll.daemons_killed += 1

    # --- what is waited for

    def started(self) -> set[str]:
        """Return the cases whose intent has reached the plane."""
        kinds = ((event["kind"], event["command_id"]) for event in self.plane.history.events())
        names = self.by_name
        return {
            command_id for kind, command_id in kinds if kind == "operation.started" and command_id in names
        }

    async def begun_are(self, share: float) -> None:
        """Return once this share of the calls that can be made has been."""
        wanted = share * sum(case.recovers for case in self.cases)
        await self.plane.until(lambda: len(self.started()) >= wanted)

    async def next_life(self) -> None:
        """Start the next daemon, and return once the plane has welcomed it."""
        welcomed = len(self.plane.hellos)
        self.made.start()
        await self.plane.until(lambda: len(self.plane.hellos) > welcomed)
        await self.plane.connected()

    # --- the end

    async def end(self, kind: str, *, politely: bool) -> None:
        """Let whoever lives end what is open; all receipts must be honest, and all come again the same."""
        await self.plane.answered()
        self.toll.slowest_s = max(self.toll.slowest_s, monotonic() - self.began)
        for case in self.cases:
            receipt = self.plane.receipt(case.name)
            assert receipt is not None
            found = outcome(receipt)
            assert found in self._honest(case, kind), f"{case.name}, {kind}: {found}: {receipt['data']}"
            self.toll.cells.add((case.name, kind))
            self.toll.receipts[found] += 1
            if found == CRASHED:
                self.toll.crashed_in.add(case.name)
        if kind in ("nothing", "server"):
            await self._all_serve_again(kind)
        await self.plane.redeliver(*self.plane.orders)
        if politely:
            assert await self.life.stop() == 0, self.life.text[-4000:]
        else:
            await self.life.kill()
        verified = await self.made.command("verify", "--deep")
        assert verified.code == 0, verified.text
        self._count()
        await must_hold(self.made)

    def _honest(self, case: Case, kind: str) -> set[str]:
        """What may be said of a case: its own end, or that whatever was killed hides it.

        One that is tried again until it succeeds does so whatever is killed.
        """
        if case.tried_again and case.ends == SUCCEEDED:
            return {SUCCEEDED}
        hidden: set[str] = {TOO_LATE} if case.execution_s == HURRIED_S else set()
        if kind in ("server", "both"):
            hidden |= case.killed
        if kind in ("daemon", "both"):
            hidden |= {CRASHED}
        return {case.ends} | hidden

    async def _all_serve_again(self, kind: str) -> None:
        """Whatever a server did, a call to it is made, where it serves the tool at all.

        Not always the next: one that kept ending is not started before its time, which is drawn.
        """
        able = [case for case in self.cases if case.recovers and (kind == "nothing" or case.outlives)]
        ends = monotonic() + PATIENCE_S
        number = 0
        while able:
            number += 1
            again = [(case, case.honest_command(number)) for case in able]
            await self.plane.give(*(command for _, command in again))
            await self.plane.answered()
            able = [case for case, command in again if not self._is_served(command, ends)]

    def _is_served(self, command: Json, ends: float) -> bool:
        receipt = self.plane.receipt(command["command_id"])
        assert receipt is not None
        found = outcome(receipt)
        self.toll.receipts[found] += 1
        waits = found == NOT_STARTED and "keeps ending" in receipt["data"]["message"] and monotonic() < ends
        assert waits or found == SUCCEEDED, f"{command['command_id']}: {receipt['data']}"
        return not waits

    def attempts(self, name: str) -> int:
        """Return how often a case was called."""
        kinds = ((event["kind"], event["command_id"]) for event in self.plane.history.events())
        return sum(kind == "operation.started" and of == name for kind, of in kinds)

    def late(self) -> dict[str, str]:
        """Return what each late answer says of its operation's effect, by command."""
        events = self.plane.history.events()
        return {
            event["command_id"]: event["data"]["effect"]
            for event in events
            if event["kind"] == "operation.late_result"
        }

    def _count(self) -> None:
        executions = self.made.executions()
        self.toll.sieges += 1
        self.toll.effects += executions.total()
        self.toll.twice += sum(count > 1 for count in executions.values())
        self.toll.late += len(self.late())


@asynccontextmanager
async def siege(
    zygote: Zygote,
    toll: Toll,
    kill_at: str | None = None,
    *,
    cases: Sequence[Case] = CASES,
    patch: str | None = None,
) -> AsyncGenerator[Siege]:
    """Start a daemon with hostile servers, and provoke every case, each time in another order."""
    async with scripted_plane() as plane, sandbox(zygote, plane) as made:
        tables: dict[str, Json] = {"driver": {"max_inflight": 2 * len(cases)}}
        webs: dict[str, Web] = {}
        for case in cases:
            place = str(made.ledger)
            if isinstance(case, HttpCase):
                server = webs[case.name] = Web(era=case.era, answer=case.counting(place))
                await made.tasks.start(server.run)
                place = f"http://127.0.0.1:{server.port}/mcp"
            tables |= case.tables(place)
        made.configure(**tables)
        plane.window = 1_024
        life = made.start(kill_at=kill_at, patch=patch)
        await life.ready()
        await plane.connected()
        begun = Siege(made=made, plane=plane, toll=toll, cases=cases, webs=webs)
        order = random.Random(SEED + toll.begun).sample(cases, len(cases))
        toll.begun += 1
        await plane.give(*(case.command() for case in order))
        try:
            yield begun
        finally:
            for server in webs.values():
                server.stop()
        if kill_at is not None:
            assert made.lives[0].code == KILLED
