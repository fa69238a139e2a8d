"""The terms of each tool: its contract, or what holds for a tool that has none.

Part of `driver.engine`; imports `driver.config.errors`, `driver.core`, `driver.providers` and
`store.records`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from driver.config.errors import toml_name
from driver.core.contracts import Contract, Contracts, ToolName
from driver.providers.describing import Describing
from driver.providers.landing import Landing
from driver.providers.protocol import Provider
from driver.providers.readoption import Readopting
from store.records import OperationId

log = structlog.get_logger(__name__)

NAMED_MAX: Final = 1_024
"""Undeclared tools that one process life warns of: their names come from outside."""


class Terms:
    """Today's contracts, as the rest of the engine asks for them."""

    def __init__(self, contracts: Contracts, providers: Mapping[str, Provider]) -> None:
        self._contracts = contracts
        self._describing = {
            name: provider for name, provider in providers.items() if isinstance(provider, Describing)
        }
        self._readopting = {
            name: provider for name, provider in providers.items() if isinstance(provider, Readopting)
        }
        self._landing = {
            name: provider for name, provider in providers.items() if isinstance(provider, Landing)
        }
        self._named: set[str] = set()
        self.probes: Final = any(contract.probe is not None for contract in contracts.tools.values())
        """Whether any contract declares a probe."""

    def lookup(self, tool: str) -> Contract:
        """Return the contract of `tool`, as a command names it.

        One that nobody declared is a write, unless its provider says that it only reads, is to be trusted in
        that (`trust_annotations`), and has said so by now.
        """
        contract = self._contracts.lookup(tool)
        if contract.declared or not self._describing:
            return contract
        name = ToolName.parse(tool)
        provider = self._describing.get(name.provider)
        if provider is None or not provider.reads(name.tool):
            return contract
        return replace(contract, effect="read")

    def readopting(self, tool: str) -> Readopting | None:
        """Return the provider of `tool`, if its attempts survive the daemon."""
        return self._readopting.get(ToolName.parse(tool).provider) if self._readopting else None

    def is_closed(self, tool: str, operation_id: OperationId, attempt: int) -> bool:
        """Whether the provider of `tool` knows that what an attempt was sent over is closed for good."""
        provider = self._landing.get(ToolName.parse(tool).provider)
        return provider is not None and not provider.may_land(operation_id, attempt)

    def warn(self, tool: str, contract: Contract) -> None:
        """Say, once in a process life, that a tool was called that no contract declares."""
        if contract.declared or tool in self._named or len(self._named) >= NAMED_MAX:
            return
        self._named.add(tool)
        name = ToolName.parse(tool)
        log.warning(
            "tool_not_declared",
            tool=tool,
            taken_for=contract.effect,
            declare=f"[{toml_name(('providers', name.provider, 'tools', name.tool))}]",
        )
