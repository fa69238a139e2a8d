"""effectd and its plane, as a person at a shell has them: their commands, and what these print.

Part of `driver.demo`; imports pydantic and the demo's processes. Nothing of effectd is imported: what it
cannot be asked from outside, the story does not tell.
"""

import json
import os
from collections.abc import AsyncGenerator, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import anyio
from pydantic import BaseModel, ConfigDict, TypeAdapter

from driver.demo.processes import Player, answer, player
from driver.demo.repository import GIT_ENV

LISTENING: Final = "listening on "
"""How the plane's first line begins; its address follows."""
READY: Final = b"READY=1"
"""What the daemon tells its service manager, here the demo (sd_notify(3))."""
KILL_AT: Final = "EFFECTD_KILL_AT"
LOSE: Final = "EFFECTD_FAULT_AFTER_EFFECT"
DATAGRAM_PREFIX: Final = "notify-"
OPERATOR_TOKEN: Final = "operator.token"  # noqa: S105 - the name of a file that the plane makes
SCOPE: Final = "demo"
PROVIDER: Final = "git"


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CommandView(_Answer):
    """What the plane knows of one command."""

    command_id: str
    state: str
    effect: str | None
    in_doubt: bool


class _Page(_Answer):
    items: tuple[CommandView, ...]


class _Delivery(_Answer):
    answer: str


class Story(_Answer):
    """What the daemon knows of one operation."""

    operation_id: str
    state: str
    effect: str
    effect_by: str | None
    best_effort: bool
    deliveries: tuple[_Delivery, ...]


class Event(_Answer):
    """One line of the journal."""

    seq: int
    kind: str
    command_id: str | None
    terminal: bool


Tables = Mapping[str, Mapping[str, object]]
"""Tables of the configuration, by their dotted names."""

_EVENTS: Final = TypeAdapter(list[Event])


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The folder with the daemon's configuration, and the plane that it is for. Made by `service`."""

    folder: Path
    effectd: str
    url: str
    tables: dict[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    """What stands in the configuration."""

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / "effectd.toml"

    async def declare(self, tables: Tables) -> None:
        """Write tables into the configuration, for the daemons that are started from now on."""
        self.tables.update(tables)
        await anyio.Path(self.config).write_text(_toml(self.tables))

    # --- the daemon

    @asynccontextmanager
    async def daemon(self, *, kill_at: str | None = None, lose: str | None = None) -> AsyncGenerator[Player]:
        """Start the daemon, and yield it when it is ready.

        `kill_at` names where it kills itself, and `lose` the tool whose first answer in each run is lost.
        """
        ready = anyio.Event()
        address = self.folder / f"{DATAGRAM_PREFIX}{os.urandom(4).hex()}"
        drills = {KILL_AT: kill_at, LOSE: lose}
        env = {"NOTIFY_SOCKET": str(address)} | {name: word for name, word in drills.items() if word}
        async with (
            await anyio.create_unix_datagram_socket(local_path=address) as channel,
            player("the daemon", (self.effectd, "run", *self._config), env=env) as daemon,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_expect_ready, channel, ready)
            await daemon.until(ready, "was ready")
            yield daemon
            tasks.cancel_scope.cancel()

    async def ops_unsettled(self) -> str:
        """Return what `effectd ops --unsettled` prints."""
        return await answer((self.effectd, "ops", "--unsettled", *self._config))

    async def story(self, command_id: str) -> Story:
        """Return what the daemon knows of the operation of a command."""
        text = await answer((self.effectd, "show", command_id, "--json", *self._config))
        return Story.model_validate_json(text)

    async def shown(self, command_id: str) -> str:
        """Return what `effectd show` prints of the operation of a command."""
        return await answer((self.effectd, "show", command_id, *self._config))

    async def reconciled(self, operation_id: str, effect: str, note: str) -> str:
        """Give an operator's verdict, and return what `effectd reconcile` prints."""
        verdict = ("--effect", effect, "--note", note)
        return await answer((self.effectd, "reconcile", operation_id, *verdict, *self._config))

    async def compensated(self, operation_id: str) -> str:
        """Ask for the compensation of an operation, and return what `effectd compensate` prints."""
        return await answer((self.effectd, "compensate", operation_id, *self._config))

    async def heard(self, kind: str, command_id: str | None = None) -> None:
        """Return once the journal has an event of this kind: of any command, or of this one."""
        found = anyio.Event()

        def hear(line: str) -> None:
            event = Event.model_validate_json(line)
            if event.kind == kind and command_id in (None, event.command_id):
                found.set()

        command = (self.effectd, "tail", "--follow", "--after", "0", "--json", *self._config)
        async with player("effectd tail", command, heard=hear) as tail:
            await tail.until(found, f"had told of {kind}")

    async def last_seq(self) -> int:
        """Return the number of the journal's newest event."""
        return max((event.seq for event in await self.events()), default=0)

    async def events(self, after: int = 0) -> list[Event]:
        """Return the journal's lines after `after`."""
        text = await answer((self.effectd, "tail", "--after", str(after), "--json", *self._config))
        return _EVENTS.validate_python([json.loads(line) for line in text.splitlines()])

    async def tail(self, after: int) -> str:
        """Return what `effectd tail` prints of the lines after `after`."""
        return await answer((self.effectd, "tail", "--after", str(after), *self._config))

    # --- the plane

    async def give(
        self,
        command_id: str,
        run_id: str,
        tool: str,
        arguments: Mapping[str, str],
        *,
        wait: bool,
        provider: str = PROVIDER,
    ) -> str:
        """Give the plane a command, and return what `effectd plane send` says first."""
        asked = ("--run", run_id, "--id", command_id, "--args", json.dumps(arguments))
        waiting = ("--wait",) if wait else ()
        # 1: it has its receipt, and that is no success
        good = (0, 1) if wait else (0,)
        said = await self._plane("send", f"{provider}/{tool}", *asked, *waiting, good=good)
        return said.partition("\n")[0]

    async def command(self, command_id: str) -> CommandView:
        """Return what the plane knows of a command."""
        return CommandView.model_validate_json(await self._plane("commands", command_id, "--json"))

    async def receipts(self, run_id: str) -> int:
        """Return how many receipts of a run the plane has."""
        text = await self._plane("receipts", "--run", run_id, "--json")
        return len(_Page.model_validate_json(text).items)

    async def _plane(self, verb: str, *rest: str, good: Container[int] = (0,)) -> str:
        token = self.folder / OPERATOR_TOKEN
        where = ("--url", self.url, "--operator-token-file", str(token))
        return await answer((self.effectd, "plane", verb, *rest, *where), good=good)

    @property
    def _config(self) -> tuple[str, str]:
        return ("--config", str(self.config))


async def _expect_ready(channel: anyio.abc.UNIXDatagramSocket, ready: anyio.Event) -> None:
    async for packet, _ in channel:
        if READY in packet.splitlines():
            ready.set()


@asynccontextmanager
async def service(folder: Path, effectd: str, git_server: Sequence[str]) -> AsyncGenerator[Service]:
    """Start a plane in `folder`, and write the configuration of a daemon that it is for."""
    await anyio.Path(folder).mkdir()
    listening = anyio.Event()
    heard: list[str] = []

    def hear(line: str) -> None:
        if line.startswith(LISTENING):
            heard.append(line.removeprefix(LISTENING))
            listening.set()

    command = (effectd, "plane", "--listen", "127.0.0.1:0", "--db", str(folder / "plane.db"))
    async with player("the plane", command, heard=hear) as plane:
        await plane.until(listening, "was listening")
        made = Service(folder=folder, effectd=effectd, url=heard[0])
        await made.declare(_usual(made, git_server))
        yield made


def _usual(made: Service, git_server: Sequence[str]) -> Tables:
    """Return the daemon's configuration, as the story begins."""
    return {
        "driver": {
            "id": "demo",
            "state_dir": str(made.folder / "state"),
            "runtime_dir": str(made.folder / "run"),
        },
        "control": {
            "url": made.url.replace("http", "ws", 1) + "/driver",
            "scope": SCOPE,
            "token_file": str(made.folder / "driver.token"),
        },
        "supervisor": {"min_age_s": 3600},  # it has its scene later
        f"providers.{PROVIDER}": {"kind": "mcp", "argv": list(git_server)},
        f"providers.{PROVIDER}.env": dict(GIT_ENV),
    }


def _toml(tables: Tables) -> str:
    """Return tables as TOML. JSON's strings, numbers and lists are TOML's too; an object is inline."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in keys.items())
        for name, keys in tables.items()
    )


def _value(value: object) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    items = cast("dict[str, object]", value).items()
    return f"{{ {', '.join(f'{key} = {_value(item)}' for key, item in items)} }}"
