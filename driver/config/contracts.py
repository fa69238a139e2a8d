"""Maps the tables of a valid configuration to the contracts that `driver.core` decides by.

Part of `driver.config`; imports its models and `driver.core`.
"""

from driver.config.models import Config
from driver.config.providers import (
    CommandProviderTable,
    CommonProviderTable,
    CompensateTable,
    ProbeTable,
    ProviderTable,
    ToolTable,
)
from driver.core.contracts import (
    Compensation,
    Contract,
    Contracts,
    Probe,
    ToolName,
    parse_key_carrier,
)
from driver.core.expressions import Expression
from driver.core.redaction import redaction
from driver.core.templates import Template


def contracts(config: Config) -> Contracts:
    """Return the contract of each declared tool, and for each provider what holds for its undeclared ones."""
    control = config.control
    held_s = control.intent_ack_timeout_s if control is not None and control.intent_ack == "required" else 0.0
    declared = {
        ToolName(name, tool): _declared(table, provider, held_s)
        for name, provider in config.providers.items()
        for tool, table in provider.tools.items()
    }
    return Contracts(
        tools=declared,
        undeclared={name: _undeclared(table, held_s) for name, table in config.providers.items()},
    )


def _undeclared(provider: CommonProviderTable, held_s: float) -> Contract:
    return Contract(
        key_carrier=parse_key_carrier(provider.key),
        held_s=held_s,
        late_result_s=_late_result_s(provider),
    )


def _late_result_s(provider: CommonProviderTable) -> float:
    """A program is gone when its call has ended: nothing can land, or answer, after that."""
    return 0.0 if isinstance(provider, CommandProviderTable) else provider.late_result_s


def _declared(tool: ToolTable, provider: ProviderTable, held_s: float) -> Contract:
    return Contract(
        declared=True,
        effect=tool.effect,
        idempotent=tool.idempotent,
        dedupe_horizon_s=tool.dedupe_horizon_s,
        key_carrier=parse_key_carrier(provider.key),
        retry=tool.retry,
        retry_attempts=tool.retry_attempts,
        retry_backoff_s=tool.retry_backoff_s,
        execution_s=tool.execution_s,
        held_s=held_s,
        late_result_s=_late_result_s(provider),
        approval=tool.approval,
        approval_expires_s=tool.approval_expires_s,
        error_means=tool.error_means,
        identical=tool.identical,
        redact=redaction(tool.redact),
        receipt=Expression(tool.receipt) if tool.receipt else None,
        probe=_probe(tool.probe) if tool.probe else None,
        compensate=_compensation(tool.compensate) if tool.compensate else None,
    )


def _probe(table: ProbeTable) -> Probe:
    return Probe(
        tool=table.tool,
        arguments=Template(table.arguments),
        matches=Expression(table.matches),
        visible_after_s=table.visible_after_s,
        attempts=table.attempts,
        authoritative_absence=table.authoritative_absence,
    )


def _compensation(table: CompensateTable) -> Compensation:
    return Compensation(tool=table.tool, arguments=Template(table.arguments))
