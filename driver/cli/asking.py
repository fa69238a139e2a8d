"""Starts the configured providers, asks each for its tools, and ends it again.

No tool is called, but for the self-test of probes, which only reads.

Part of `driver.cli`; imports `driver.assembly` and the providers, and so the MCP SDK.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import anyio

from driver import assembly
from driver.cli.controls import Controls
from driver.cli.inspection import ProviderReport, declared_only, inspect, unasked
from driver.cli.selftest import Tested, selftest
from driver.config.contracts import contracts
from driver.config.models import Config
from driver.config.providers import ProviderTable
from driver.core.attempts import NotSent, Report
from driver.providers.command.provider import CommandProvider
from driver.providers.http.provider import HttpProvider
from driver.providers.mcp.provider import McpProvider
from driver.providers.protocol import Provider
from store.records import JsonObject, OperationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be said about each provider, in the order of the configuration, and of each probe tested."""

    providers: tuple[ProviderReport, ...]
    tests: Mapping[str, Tested]
    """By the full name of the tool that is probed; empty where nobody asked for tests."""


Listed: TypeAlias = Mapping[str, JsonObject] | NotSent
"""A server's tools, each with its definition as it came; or why it cannot be asked."""


async def ask(config: Config, controls: Controls | None) -> Asked:
    """Ask each provider for its tools; with `controls`, run each probe as well, which only reads.

    Takes as long as the slowest start, which is bounded, and the tests. A cancellation ends what was started.
    """
    reports: dict[str, ProviderReport] = {}
    tests: dict[str, Tested] = {}

    async def ask_one(name: str, provider: Provider) -> None:
        async with _running(provider):
            reports[name] = await _report(name, config.providers[name], provider)
            if controls is not None:
                tests.update(await _tests(config, name, provider, controls, reports[name].error))

    async with _somewhere(config) as placed, anyio.create_task_group() as tasks:
        for name, provider in assembly.providers(placed, _ignore_late).items():
            tasks.start_soon(ask_one, name, provider)
    return Asked(providers=tuple(reports[name] for name in config.providers), tests=tests)


async def _tests(
    config: Config, name: str, provider: Provider, controls: Controls, error: str | None
) -> dict[str, Tested]:
    """Test the probes of a provider, one after the other. `error` says why it cannot be asked."""
    known = contracts(config)
    tests: dict[str, Tested] = {}
    for tool in config.providers[name].tools:
        full = f"{name}/{tool}"
        probe = known.lookup(full).probe
        if probe is None:
            continue
        if error is not None:
            tests[full] = Tested(status="untested", detail=f"its provider cannot be asked: {error}")
            continue
        read = known.lookup(f"{name}/{probe.tool}")
        known_to_have = controls.by_tool.get(full, ())
        tests[full] = await selftest(provider, probe, read, known_to_have, controls.problem)
    return tests


async def listed(config: Config) -> Mapping[str, Listed]:
    """Return what each MCP server of the configuration lists, by its provider's name.

    Takes as long as the slowest start, which is bounded. A cancellation ends what was started.
    """
    found: dict[str, Listed] = {}

    async def list_one(name: str, provider: Provider) -> None:
        assert isinstance(provider, McpProvider), "only such a server lists tools"
        async with _running(provider):
            served = await provider.list_tools()
            found[name] = (
                served if isinstance(served, NotSent) else {tool.name: tool.definition for tool in served}
            )

    async with _somewhere(config) as placed, anyio.create_task_group() as tasks:
        for name, provider in assembly.providers(placed, _ignore_late).items():
            tasks.start_soon(list_one, name, provider)
    return found


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
    """What is read for a test, and comes too late, is nobody's."""
    del operation_id, attempt, report
