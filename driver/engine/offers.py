"""Reads deliveries: what each asks for, and whether its call could go out at once.

Part of `driver.engine`; imports `driver.core`, `driver.providers.protocol` and its own siblings. Nothing is
known of the journal here: what becomes of an offer is decided in a transaction (`driver.engine.intake`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driver.core.admission import Candidate, candidate
from driver.core.attempts import NotSent, ToolCall
from driver.core.commands import InvalidData, ToolCallData
from driver.core.contracts import Contract, ToolName
from driver.core.frames import CommandFrame, InvalidCommand
from driver.core.identity import args_digest, operation_id
from driver.engine.reports import no_provider
from driver.engine.surroundings import Surroundings
from driver.engine.withheld import Fingerprints, tool_of
from store.records import CommandId, Digest, JsonObject, OperationId, RunId
from store.values import light


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One delivery, read and judged on its own, before anything is known of the journal."""

    command_id: CommandId
    run_id: RunId | None
    kind: str
    raw: JsonObject
    frame: CommandFrame | InvalidCommand
    candidate: Candidate
    operation_id: OperationId | None = None
    """Of a call; None where it is none, or has no usable run."""
    args_digest: Digest | None = None
    contract: Contract
    expires_in_ms: int | None
    traceparent: str | None
    refusal: NotSent | None = None
    ready: bool = False
    """Whether the call could go out at once."""


class Offers:
    """Reads deliveries. `kinds` are those that are done, `crowded` whether calls wait for a slot."""

    def __init__(self, around: Surroundings, kinds: Sequence[str], crowded: Callable[[], bool]) -> None:
        self._providers = around.providers
        self._terms = around.terms
        self._posture = around.posture
        self._scope = around.scope
        self._kinds = kinds
        self._crowded = crowded
        self._fingerprints = Fingerprints(around.journal.key)

    def read(self, frame: CommandFrame | InvalidCommand) -> Offer:
        """Return what one delivery asks for, and whether it could be done at once. Calls nobody."""
        contract = self._terms.lookup(tool_of(frame))
        digester = self._fingerprints.digester(contract)
        asked = candidate(frame, digester)
        if isinstance(frame, InvalidCommand):
            return Offer(
                command_id=frame.command_id,
                run_id=frame.run_id,
                kind="",
                raw={},
                frame=frame,
                candidate=asked,
                contract=contract,
                expires_in_ms=None,
                traceparent=None,
            )
        asked = _supported(frame.kind, asked, self._kinds)
        data = asked.data
        identity = None
        if frame.kind == ToolCallData.KIND:
            identity = operation_id(self._scope, frame.run_id, frame.command_id)
        ready, refusal = self._readiness(frame, asked, identity)
        return Offer(
            command_id=frame.command_id,
            run_id=frame.run_id,
            kind=frame.kind,
            raw=frame.data,
            frame=frame,
            candidate=asked,
            operation_id=identity,
            args_digest=args_digest(data.tool, data.arguments, digester)
            if isinstance(data, ToolCallData)
            else None,
            contract=contract,
            expires_in_ms=frame.expires_in_ms,
            traceparent=frame.traceparent,
            ready=ready,
            refusal=refusal,
        )

    def _readiness(
        self, frame: CommandFrame, asked: Candidate, identity: OperationId | None
    ) -> tuple[bool, NotSent | None]:
        """Whether the call could go out at once, and why it never can where that is plain already."""
        if identity is None or not isinstance(asked.data, ToolCallData):
            return False, None
        name = ToolName.parse(asked.data.tool)
        provider = self._providers.get(name.provider)
        if provider is None:
            return False, NotSent(reason="unknown_tool", message=no_provider(name))
        asks = self._terms.lookup(asked.data.tool).approval == "required"
        if asks or not self._posture.may_dispatch or self._crowded():
            return False, None
        call = ToolCall(
            operation_id=identity,
            attempt=1,
            tool=name.tool,
            arguments=asked.data.arguments,
            key=identity,
            timeout_s=0.0,
            traceparent=frame.traceparent,
        )
        return provider.ready(call), None


def _supported(kind: str, asked: Candidate, kinds: Sequence[str]) -> Candidate:
    """A kind of the protocol that this version does not do is refused like one that it never heard of."""
    if isinstance(asked.data, InvalidData) or kind in kinds:
        return asked
    message = f"this version does not do {kind}; it does {', '.join(kinds)}"
    return Candidate(
        content_digest=asked.content_digest,
        data=InvalidData(code="unknown_kind", message=message),
        delivered_to=asked.delivered_to,
    )
