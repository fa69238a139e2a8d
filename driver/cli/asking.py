"""Starts the configured providers, asks each for its tools, and ends it again; no tool is called.

Part of `driver.cli`; imports `driver.assembly` and the providers, and so the MCP SDK.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from driver import assembly
from driver.cli.inspection import ProviderReport, declared_only, inspect, unasked
from driver.config.models import Config
from driver.config.providers import ProviderTable
from driver.core.attempts import NotSent, Report
from driver.providers.command.provider import CommandProvider
from driver.providers.http.provider import HttpProvider
from driver.providers.mcp.provider import McpProvider
from driver.providers.protocol import Provider
from store.records import OperationId


async def ask(config: Config) -> tuple[ProviderReport, ...]:
    """Return what is to be said about each provider, in the order of the configuration.

    Takes as long as the slowest start, which is bounded. A cancellation ends what was started.
    """
    reports: dict[str, ProviderReport] = {}

    async def ask_one(name: str, provider: Provider) -> None:
        async with _running(provider):
            reports[name] = await _report(name, config.providers[name], provider)

    async with _somewhere(config) as placed, anyio.create_task_group() as tasks:
        for name, provider in assembly.providers(placed, _ignore_late).items():
            tasks.start_soon(ask_one, name, provider)
    return tuple(reports[name] for name in config.providers)


@asynccontextmanager
async def _somewhere(config: Config) -> AsyncGenerator[Config]:
    """Servers without a `cwd` run in the daemon's folder; where that is not made yet, in a temporary one."""
    if await anyio.Path(config.work_dir).is_dir():
        yield config
        return
    folder = await anyio.to_thread.run_sync(partial(TemporaryDirectory, prefix="effectd-check-"))
    try:
        driver = config.driver.model_copy(update={"state_dir": Path(folder.name)})
        placed = config.model_copy(update={"driver": driver})
        await anyio.Path(placed.work_dir).mkdir()
        yield placed
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)


@asynccontextmanager
async def _running(provider: Provider) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(provider.run)
        yield
        await provider.close()


async def _report(name: str, table: ProviderTable, provider: Provider) -> ProviderReport:
    if isinstance(provider, HttpProvider):
        refused = await provider.reach()
        return declared_only(name, table.tools) if refused is None else unasked(name, refused)
    if isinstance(provider, CommandProvider):
        examined = await provider.examine()
        if isinstance(examined, NotSent):
            return unasked(name, examined)
        return declared_only(name, table.tools, examined)
    assert isinstance(provider, McpProvider), "the configuration has no other kind"
    served = await provider.list_tools()
    if isinstance(served, NotSent):
        return unasked(name, served)
    return inspect(name, table, table.tools, {tool.name: tool.definition for tool in served})


def _ignore_late(operation_id: OperationId, attempt: int, report: Report) -> None:
    """Nothing was called, so nothing can be late."""
    del operation_id, attempt, report
