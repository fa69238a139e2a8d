"""A provider on a stage: a real site, and a record of what the provider said."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from driver.core.attempts import NotSent, Phase, Report, ToolCall
from driver.core.contracts import KeyCarrier, NoKey
from driver.providers.http.provider import HttpProvider
from driver.providers.http.settings import Endpoint, HttpSettings
from store.records import JsonObject, OperationId
from tests.driver.providers.http.site import PATIENCE_S, Script, Site, site

ANSWERED = [Phase.CONNECTING, Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
"""The phases of a call that was not prepared, and was answered."""


DEADLINE_S = 1.5
"""For a call that is not answered in time, on purpose: by then it must have left, on any machine."""


class Stage:
    """The provider, and what it reported late."""

    def __init__(self, settings: HttpSettings) -> None:
        self.late: list[tuple[OperationId, int, Report]] = []
        self.phases: list[Phase] = []
        self.provider = HttpProvider(settings, self._on_late)
        self._heard = anyio.Event()
        self._ids = count(1)

    def _on_late(self, operation_id: OperationId, attempt: int, report: Report) -> None:
        self.late.append((operation_id, attempt, report))
        self._heard.set()

    async def hear(self) -> Report:
        """Return the first late answer, once it has come."""
        with anyio.fail_after(PATIENCE_S):
            await self._heard.wait()
        return self.late[0][2]

    def call(
        self,
        tool: str = "act",
        arguments: JsonObject | None = None,
        *,
        timeout_s: float = PATIENCE_S,
        traceparent: str | None = None,
    ) -> ToolCall:
        """Return a call with an operation id, and so a key, of its own."""
        operation_id = OperationId(f"op_{next(self._ids)}")
        return ToolCall(
            operation_id=operation_id,
            attempt=1,
            tool=tool,
            arguments=arguments or {},
            key=operation_id,
            timeout_s=timeout_s,
            traceparent=traceparent,
        )

    async def dispatch(self, call: ToolCall | None = None, *, timeout_s: float = PATIENCE_S) -> Report:
        """Dispatch `call` without preparing it; its phases are in `phases` afterwards."""
        self.phases = []
        return await self.provider.dispatch(call or self.call(timeout_s=timeout_s), self.phases.append)

    async def run(self, call: ToolCall | None = None) -> Report:
        """Prepare and dispatch `call`, as the engine does."""
        call = call or self.call()
        refused = await self.provider.prepare(call)
        return await self.dispatch(call) if refused is None else refused

    async def refusal(self, arguments: JsonObject) -> NotSent:
        """Return why `act` is not called with these arguments."""
        refused = await self.provider.prepare(self.call("act", arguments))
        assert refused is not None
        return refused


def endpoint(**declared: object) -> Endpoint:
    """Return the declaration of a tool: a POST to `/act`, if nothing else is said."""
    keys: dict[str, Any] = {"path": "/act"} | declared
    return Endpoint.declared(**keys)


def settings(base_url: str, endpoints: Mapping[str, Endpoint], **others: object) -> HttpSettings:
    """Return a provider with a short late window."""
    usual: dict[str, Any] = {"key": NoKey(), "late_result_s": 30.0, "answer_max_bytes": 100_000}
    keys: dict[str, Any] = usual | others
    return HttpSettings(name="stage", base_url=base_url, endpoints=endpoints, **keys)


@asynccontextmanager
async def staged(configured: HttpSettings) -> AsyncGenerator[Stage]:
    """Run a provider, and close it at the end."""
    stage = Stage(configured)
    async with anyio.create_task_group() as tasks:
        await tasks.start(stage.provider.run)
        yield stage
        await stage.provider.close()


@asynccontextmanager
async def on_stage(
    script: Script,
    *,
    tools: Mapping[str, Endpoint] | None = None,
    key: KeyCarrier | None = None,
    kind: type[Site] = Site,
    **others: object,
) -> AsyncGenerator[tuple[Site, Stage]]:
    """A site that answers with `script`, and a provider with the tool `act`, and with `tools`."""
    endpoints = {"act": endpoint(), **(tools or {})}
    async with site(script, kind=kind) as made:
        url = f"http://127.0.0.1:{made.port}"
        async with staged(settings(url, endpoints, key=key or NoKey(), **others)) as stage:
            yield made, stage


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """Return the TLS settings of a site that shows `certificate`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context
