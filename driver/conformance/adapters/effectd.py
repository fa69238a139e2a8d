"""effectd itself: the daemon and its reference plane, as they are installed.

Part of `driver.conformance.adapters`; imports nothing else of ours. A command goes to the plane's HTTP API,
and what the plane shows of it is what a caller is told: its state, `running` until there is a receipt, and of
one that nobody answered, what became known of its effect. The search is declared as the probe of the writes.
Both processes are killed together; the plane has its file, as the daemon has.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio
import httpx2
from anyio import to_thread

from driver.conformance.adapters.verbs import Command, Setting, Told, serve

EFFECTD: Final = (str(Path(sys.executable).with_name("effectd")),)
"""The command that stands beside the interpreter."""
LISTENING: Final = "listening on "
ENDS: Final = frozenset({"succeeded", "failed", "not_executed", "unknown", "refused"})
FOUND_OUT: Final[Mapping[str, str]] = MappingProxyType({"occurred": "succeeded", "none": "not_executed"})
"""What a caller is told of an operation that nobody answered, by what is known of its effect since."""
PROVIDER: Final = "world"
WAIT_MAX_S: Final = 60
Json = dict[str, Any]


class Effectd:
    """The plane's HTTP API."""

    name = "effectd"
    version = metadata.version("effectd")
    parts: Mapping[str, str] = MappingProxyType({"mcp": metadata.version("mcp")})

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def deliver(self, command: Command) -> str | None:
        """Give the plane a command."""
        call: Json = {"tool": f"{PROVIDER}/{command.tool}", "arguments": dict(command.arguments)}
        body: Json = {
            "command_id": command.command_id,
            "run_id": command.run_id,
            "kind": "tool.call",
            "data": call,
        }
        answer = await self._http.post("/v1/commands", json=body)
        return None if answer.is_success else str(answer.json()["code"])

    async def outcome(self, command_id: str, wait_s: float) -> Told:
        """Ask the plane for a command, as soon as it has its receipt."""
        wait = min(int(wait_s), WAIT_MAX_S)
        answer = await self._http.get(f"/v1/commands/{command_id}", params={"wait": wait})
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return Told(outcome="unheard")
        shown: Json = answer.raise_for_status().json()
        state, effect = str(shown["state"]), str(shown["effect"])
        known = FOUND_OUT.get(effect, state) if state == "unknown" else state
        return Told(outcome=known if known in ENDS else "running", detail=f"{state}, effect {effect}")


def _start(setting: Setting, started: ExitStack) -> tuple[str, str]:
    """Start the plane and the daemon; return the plane's address, and its operators' token."""
    plane = _listening(setting.state, started)
    config = setting.state / "effectd.toml"
    config.write_text(_configuration(setting, plane))
    daemon = subprocess.Popen(
        (*EFFECTD, "run", "--config", str(config)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    started.callback(daemon.kill)
    return plane, (setting.state / "operator.token").read_text().strip()


def _listening(folder: Path, started: ExitStack) -> str:
    command = (*EFFECTD, "plane", "--listen", "127.0.0.1:0", "--db", str(folder / "plane.db"))
    plane = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    started.callback(plane.kill)
    assert plane.stdout is not None, "its output is a pipe"
    line = next((line for line in plane.stdout if line.startswith(LISTENING)), LISTENING)
    return line.removeprefix(LISTENING).strip()


def _configuration(setting: Setting, plane: str) -> str:
    tools = "\n".join(_contract(name, about, setting.deadline_s) for name, about in setting.tools.items())
    return f"""
[driver]
id = "conformance"
state_dir = {json.dumps(str(setting.state / "journal"))}
runtime_dir = {json.dumps(str(setting.state / "run"))}

[control]
url = {json.dumps(plane.replace("http", "ws", 1) + "/driver")}
scope = "conformance"
token_file = {json.dumps(str(setting.state / "driver.token"))}

[providers.{PROVIDER}]
kind = "mcp"
argv = {json.dumps(list(setting.server))}
key = "meta"
{tools}
"""


def _contract(name: str, about: Mapping[str, Any], deadline_s: float) -> str:
    lines = [
        f"[providers.{PROVIDER}.tools.{name}]",
        f"execution_s = {deadline_s}",
        f'effect = "{about["effect"]}"',
    ]
    if about["effect"] == "write" and about["idempotent"]:
        lines += ["idempotent = true", "dedupe_horizon_s = 3600", 'retry = "same-key"']
    if "search" in about:
        lines += [
            f"[providers.{PROVIDER}.tools.{name}.probe]",
            f'tool = "{about["search"]}"',
            'arguments = { item = "=arguments.item" }',
            'matches = "result.structuredContent.count"',
        ]
    return "\n".join(lines)


async def main() -> None:
    """Serve the battery."""
    clients: list[httpx2.AsyncClient] = []
    started = ExitStack()

    async def start(setting: Setting) -> Effectd:
        url, token = await to_thread.run_sync(_start, setting, started)
        http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=WAIT_MAX_S * 2,
            trust_env=False,
        )
        clients.append(http)
        return Effectd(http)

    try:
        await serve(start)
    finally:
        started.close()  # a battery that is killed leaves nothing, either: our input ends with it
        for http in clients:
            await http.aclose()


if __name__ == "__main__":
    anyio.run(main)
