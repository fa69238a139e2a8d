"""One well-formed sample of every frame, of every kind of command and of event, and of an operation."""

from collections.abc import Sequence
from typing import Final

from driver.core.commands import (
    AnnotateData,
    ApproveData,
    CancelData,
    CompensateData,
    EraseData,
    ProbeData,
    ReconcileData,
    RetryData,
    RunCancelData,
    RunCompensateData,
    RunEndData,
    ToolCallData,
    TriageData,
)
from driver.core.frames import (
    Ack,
    CommandFrame,
    ErrorFrame,
    EventFrame,
    Frame,
    Gap,
    Hello,
    Nack,
    Refused,
    Reject,
    Retired,
    Welcome,
)
from store.chain import digest, extend, origin, seal
from store.declared import EventData
from store.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptEnded,
    CommandAccepted,
    CommandCompleted,
    CommandFailed,
    CommandRefused,
    DriverFenced,
    DriverRecovered,
    DriverStarted,
    DriverStopping,
    DriverUnfenced,
    LateResult,
    OperationAnnotated,
    OperationCompensated,
    OperationDiverged,
    OperationFailed,
    OperationNotExecuted,
    OperationProbed,
    OperationReconciled,
    OperationStarted,
    OperationSucceeded,
    OperationUnknown,
    SupervisorVerdict,
)
from store.lifecycle import Effect, Source, State
from store.records import (
    BootId,
    Chain,
    CommandId,
    Digest,
    JournalId,
    JsonObject,
    OperationId,
    OperationRecord,
    Origin,
    RunId,
    Timestamp,
)
from store.wire import render

JOURNAL: Final = JournalId("4f0c" * 8)
BOOT: Final = BootId("9a1e" * 8)
CHAIN: Final = Chain("77ae" * 8)
RUN: Final = RunId("run-1")
COMMAND: Final = CommandId("cmd-9")
OPERATION: Final = OperationId("op_" + "5d" * 16)
DIGEST: Final = Digest("ab" * 32)
AT: Final = Timestamp("2026-11-29T10:40:19.925541Z")

ENDED: Final = OperationRecord(
    operation_id=OPERATION,
    command_id=COMMAND,
    run_id=RUN,
    origin=Origin.PLANE,
    tool="a/b",
    args_digest=DIGEST,
    write=True,
    identical="guard-unsettled",
    repeat=False,
    state=State.SUCCEEDED,
    effect=Effect.OCCURRED,
    effect_by=Source.PROVIDER,
    best_effort=False,
    settled=True,
    guards=False,
    reason=None,
    error_means=None,
    receipt=None,
    attempt_count=1,
    metadata=None,
    accepted_seq=1,
    started_seq=1,
    result_seq=2,
    accepted_at=AT,
    started_at=AT,
    ended_at=AT,
    deadline_at=None,
    expires_at=None,
    parent_operation_id=None,
)
"""What was called once, and succeeded."""

FROM_PLANE: Final[Sequence[Frame]] = (
    Welcome(session_id="s-81", acked_seq=0, window=256, max_frame_bytes=1_048_576),
    Welcome(session_id="s-81", acked_seq=1200, acked_chain=CHAIN, window=1, max_frame_bytes=65_536),
    Reject(code="unsupported_protocol", message="only 1"),
    Ack(seq=0),
    Ack(seq=1234),
    Nack(seq=1, code="invalid", message="no"),
    Nack(seq=1207, code="busy", retry_after_ms=500),
    ErrorFrame(code="unknown_type", message="what?"),
    CommandFrame(command_id=COMMAND, run_id=RUN, kind="run.end"),
    CommandFrame(
        command_id=COMMAND,
        run_id=RUN,
        kind="tool.call",
        data={"tool": "a/b", "arguments": {"n": 1.5, "x": [None]}, "unknown": True},
        expires_in_ms=60_000,
        delivered_to=(JOURNAL,),
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    ),
)

FROM_DAEMON: Final[Sequence[Frame]] = (
    Hello(
        protocol=1,
        driver_id="sbx-7",
        journal_id=JOURNAL,
        boot_id=BOOT,
        software="effectd/0.1.0",
        capabilities=("tool.call", "probe"),
        last_seq=1234,
        acked_seq=1200,
        unsettled=2,
        max_inflight=64,
        tombstone_days=365,
        state="ready",
    ),
    EventFrame(
        journal_id=JOURNAL,
        seq=1,
        kind="driver.started",
        at=AT,
        run_id=None,
        command_id=None,
        operation_id=None,
        origin="local",
        terminal=False,
        best_effort=False,
        data={"software": "effectd/0.1.0"},
        chain=CHAIN,
    ),
    Gap(from_=501, to=899, chain=CHAIN),
    Refused(command_id=COMMAND, code="overloaded", message="later"),
    Retired(
        command_id=COMMAND,
        operation_id=OPERATION,
        kind="operation.succeeded",
        effect="occurred",
        journal_id=JOURNAL,
        seq=7,
    ),
    Retired(
        command_id=COMMAND,
        operation_id=None,
        kind="command.completed",
        effect=None,
        journal_id=JOURNAL,
        seq=8,
    ),
    ErrorFrame(code="binary_frame"),
)

COMMANDS: Final[dict[str, tuple[JsonObject, ...]]] = {
    ToolCallData.KIND: (
        {"tool": "a/b", "arguments": {}},
        {
            "tool": "a/b",
            "arguments": {"x": 1},
            "repeat": True,
            "resumes": ["r"],
            "parent_operation_id": OPERATION,
        },
    ),
    CancelData.KIND: ({"target_command_id": "cmd-1"}, {"target_command_id": "cmd-1", "reason": "late"}),
    RunCancelData.KIND: ({}, {"reason": "late"}),
    RunEndData.KIND: ({}, {"outcome": "done"}),
    ApproveData.KIND: (
        {"operation_id": OPERATION, "approval_id": "apr-1", "decision": "grant", "approver": "ann"},
        {
            "operation_id": OPERATION,
            "approval_id": "apr-1",
            "decision": "deny",
            "approver": "ann",
            "reason": "no",
        },
    ),
    ReconcileData.KIND: (
        {"operation_id": OPERATION, "effect": "none", "actor": "operator:ann", "note": "looked"},
        {
            "operation_id": OPERATION,
            "effect": "unknown",
            "actor": "operator:ann",
            "note": "x" * 2_000,
            "evidence": ["https://example.test/1"],
            "override": True,
        },
    ),
    ProbeData.KIND: ({"operation_id": OPERATION},),
    RetryData.KIND: ({"operation_id": OPERATION},),
    CompensateData.KIND: ({"operation_id": OPERATION},),
    RunCompensateData.KIND: ({},),
    AnnotateData.KIND: (
        {"operation_id": OPERATION, "metadata": {}},
        {"operation_id": OPERATION, "metadata": {"id": "1", "title": "x" * 4_000, "url": "u"}},
    ),
    TriageData.KIND: ({},),
    EraseData.KIND: ({},),
}

EVENTS: Final[Sequence[EventData]] = (
    CommandAccepted(kind="run.end", content_digest=DIGEST),
    CommandAccepted(
        kind="tool.call",
        content_digest=DIGEST,
        tool="a/b",
        args_digest=DIGEST,
        write=True,
        identical="guard-unsettled",
        expires_at=AT,
        repeat=True,
        resumes=(RUN,),
        parent_operation_id=OPERATION,
        payload_digest=DIGEST,
    ),
    CommandRefused(
        code="lookalike_unsettled",
        message="m",
        content_digest=DIGEST,
        twin_operation_id=OPERATION,
        resumes=(RUN,),
    ),
    CommandCompleted(result=None),
    CommandFailed(code="journal_lost", message="m"),
    ApprovalRequested(approval_id="apr-1", tool="a/b", args_digest=DIGEST, arguments={"x": 1}, expires_at=AT),
    ApprovalDecided(approval_id="apr-1", decision="grant", approver="ann", reason=None),
    OperationStarted(
        tool="a/b",
        attempt=1,
        idempotency_key=OPERATION,
        key_carrier="meta",
        idempotent=False,
        dedupe_horizon_s=None,
        args_digest=DIGEST,
        deadline_at=AT,
    ),
    AttemptEnded(attempt=1, phase="connecting", outcome="not_executed", reason="connect_failed"),
    OperationSucceeded(result={"content": []}, receipt="42", attempts=1, duration_ms=3),
    OperationFailed(
        effect=Effect.UNKNOWN,
        error={"code": -32000, "message": "no"},
        error_means="reported",
        result=None,
        receipt=None,
        attempts=1,
    ),
    OperationNotExecuted(reason="expired"),
    OperationUnknown(reason="crash_window", phase=None, attempts=1),
    LateResult(attempt=1, effect=Effect.OCCURRED, result=[1], receipt={"n": 1}, supersedes=3),
    OperationProbed(verdict="absent", matches=0, detail=None),
    OperationReconciled(
        effect=Effect.NONE,
        actor="operator:ann",
        basis="operator",
        note="looked",
        evidence=("https://example.test/1",),
        started_seq=4,
        supersedes=5,
    ),
    OperationAnnotated(metadata={"id": "42"}),
    OperationCompensated(compensation_operation_id=OPERATION, effect=Effect.OCCURRED),
    OperationDiverged(evidence=(4, 9), detail="they contradict each other"),
    SupervisorVerdict(
        needs_attention=True,
        summary="s",
        causes=("c",),
        remedies=(),
        lesson="l",
        operation_ids=(OPERATION,),
        wall_digest=DIGEST,
        model="rules",
        status="ok",
    ),
    DriverStarted(software="effectd/0.1.0"),
    DriverRecovered(waiting=1, unknown=2),
    DriverFenced(reason="superseded", detail="d"),
    DriverUnfenced(reason="superseded", actor="operator:0"),
    DriverStopping(reason="sigterm"),
)


def sealed(data: EventData, *, seq: int = 1, previous: Chain | None = None) -> bytes:
    """The frame of `data` as a journal renders it: the `seq`-th, where the chain was `previous` so far."""
    of_command = not data.KIND.startswith(("driver.", "supervisor."))
    body = render(
        data,
        journal_id=JOURNAL,
        seq=seq,
        at=AT,
        run_id=RUN if of_command else None,
        command_id=COMMAND if of_command else None,
        operation_id=OPERATION if data.KIND.startswith("operation.") else None,
        origin=Origin.PLANE if of_command else Origin.LOCAL,
        terminal=data.TERMINAL,
        best_effort=False,
    )
    before = origin(JOURNAL) if previous is None else previous
    return seal(body, extend(before, digest(body)))
