"""Everything that a server over stdio can do wrong: how to provoke it, and what may honestly be said of it.

Each case is a provider of its own, `tests/servers/hostile_mcp.py` in one of its modes. What stands in `ends`
is what the receipt says when nobody is killed: the row of docs/configuration.md that the case is about.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tests.servers import hostile_mcp
from tests.system.history import Json
from tests.system.plane import call

ANSWER_BYTES_MAX: Final = 1_048_576
LATE_S: Final = 4.0
HURRIED_S: Final = 1.5
"""The deadline of a call that is not answered in time, on purpose."""

SUCCEEDED: Final = "operation.succeeded"
FAILED: Final = "operation.failed"
NO_TOOL: Final = "operation.not_executed/unknown_tool"
TOO_LATE: Final = "operation.not_executed/deadline"
"""On a machine so busy that the deadline passes before the first byte: nothing was executed then."""
EXPIRED: Final = "operation.not_executed/expired"
LOST: Final = "operation.unknown/connection_lost"
LATE: Final = "operation.unknown/execution_timeout"
GARBLED: Final = "operation.unknown/protocol_error"
PENDING: Final = "operation.unknown/task_pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to be hostile."""

    name: str
    ends: str
    arguments: Json = field(default_factory=dict[str, object])
    options: tuple[str, ...] = ()
    tool: str = "act"
    execution_s: float = 20.0
    expires_in_ms: int | None = None
    answers_late: bool = False
    kept: frozenset[str] = frozenset()
    """What may be said of it beside `LOST`, where its server was killed."""
    contract: Json = field(default_factory=dict[str, object])
    """Of its tool, beside the deadline."""

    @property
    def mark(self) -> str:
        """What its server's command line has, and no other's."""
        return f"case={self.name}"

    @property
    def tried_again(self) -> bool:
        """Whether its contract has it called again, with the same key."""
        return self.contract.get("retry") == "same-key"

    @property
    def recovers(self) -> bool:
        """Whether an honest call gets through afterwards."""
        return not self.ends.startswith("operation.not_executed")

    @property
    def killed(self) -> frozenset[str]:
        """What may be said of it instead where its server was killed."""
        return self.kept | {LOST}

    @property
    def outlives(self) -> bool:
        """Whether its provider serves again after its server was killed."""
        return True

    def provider(self, place: str) -> Mapping[str, object]:
        """Return which server its provider has; `place` is the ledger."""
        argv = [sys.executable, "-I", "-S", hostile_mcp.__file__, place, "counts", self.mark, *self.options]
        return {"kind": "mcp", "argv": argv}

    def tables(self, place: str) -> Mapping[str, Json]:
        """Return its provider's configuration."""
        name = f"providers__{self.name}"
        limits = {"answer_max_bytes": ANSWER_BYTES_MAX, "late_result_s": LATE_S}
        return {
            name: {**self.provider(place), **limits},
            f"{name}__tools__{self.tool}": {"execution_s": self.execution_s, **self.contract},
        }

    def command(self) -> Json:
        """Return the call that provokes it."""
        arguments = {"mode": self.name, **self.arguments}
        command = call(self.name, f"{self.name}/{self.tool}", run_id=f"run-{self.name}", **arguments)
        return command if self.expires_in_ms is None else {**command, "expires_in_ms": self.expires_in_ms}

    def honest_command(self, number: int) -> Json:
        """Return a call to the same provider that provokes nothing, the `number`-th."""
        arguments: Json = {"mode": "honest", "of": self.name, "number": number}
        return call(f"after-{number}-{self.name}", f"{self.name}/act", run_id="run-after", **arguments)


def _honest(name: str, *options: str, ends: str = SUCCEEDED, expires_in_ms: int | None = None) -> Case:
    """A server that is hostile before or beside its calls."""
    arguments: Json = {"mode": "honest"}
    return Case(name=name, ends=ends, arguments=arguments, options=options, expires_in_ms=expires_in_ms)


def _task(name: str, ends: str, /, *, execution_s: float = 20.0, late: bool = False, **task: object) -> Case:
    """A server that gives a handle, which is kept when the server dies."""
    arguments: Json = {"mode": "task", **task}
    return Case(
        name=name,
        ends=ends,
        arguments=arguments,
        execution_s=execution_s,
        answers_late=late,
        kept=frozenset({PENDING}),
    )


def _says(name: str, ends: str, line: str, execution_s: float = 20.0) -> Case:
    """A server that answers with this line."""
    return Case(name=name, ends=ends, arguments={"mode": "verbatim", "line": line}, execution_s=execution_s)


def _results(name: str, ends: str, result: Json, tool: str = "act") -> Case:
    """A server that answers with this result."""
    return Case(name=name, ends=ends, arguments={"mode": "result", "result": result}, tool=tool)


STDIO_CASES: Final[tuple[Case, ...]] = (
    Case(name="honest", ends=SUCCEEDED),
    # it dies, or as good as
    Case(name="dies-before", ends=LOST),
    Case(name="dies-after", ends=LOST),
    Case(name="half", ends=LOST),
    Case(name="answers-and-dies", ends=SUCCEEDED),
    Case(name="closes", ends=LOST),
    Case(name="spawn", ends=SUCCEEDED, arguments={"seconds": 5}),
    # it hangs, or is late
    Case(name="freezes", ends=LATE, execution_s=HURRIED_S),
    Case(name="deaf", ends=LATE, execution_s=HURRIED_S),
    Case(name="silent", ends=LATE, execution_s=HURRIED_S),
    Case(name="late", ends=LATE, arguments={"seconds": 3}, execution_s=HURRIED_S, answers_late=True),
    Case(
        name="late-error",
        ends=LATE,
        arguments={"seconds": 3, "code": -32603},
        execution_s=HURRIED_S,
        answers_late=True,
    ),
    # it says what is no answer
    # an answer that is read at one go with what came before it counts: it must come well after that
    Case(name="garbage", ends=GARBLED, arguments={"seconds": 2.5}, answers_late=True),
    Case(name="garbage-flood", ends=GARBLED),
    Case(name="big", ends=GARBLED, arguments={"bytes": 64_000_000}),
    Case(name="endless", ends=GARBLED),
    Case(name="bomb", ends=GARBLED, arguments={"bytes": 1_000_000}),
    Case(name="deep", ends=GARBLED, arguments={"levels": 200}),
    Case(name="chatters", ends=LATE, execution_s=HURRIED_S),
    Case(name="answers-nobody", ends=GARBLED),
    _says("cut", GARBLED, '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}'),
    _says("not-a-number", GARBLED, '{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}'),
    _says("bottomless", GARBLED, "[" * 100_000),
    _says("no-code", GARBLED, '{"jsonrpc":"2.0","id":ID,"error":{"message":"no code"}}'),
    _says("wrong-id", LATE, '{"jsonrpc":"2.0","id":9ID,"result":{"content":[]}}', HURRIED_S),
    _says("text-id", SUCCEEDED, '{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}'),
    # it says what is an answer, oddly
    Case(name="invalid-utf8", ends=SUCCEEDED),
    Case(name="lone-surrogate", ends=SUCCEEDED),
    Case(name="environment", ends=SUCCEEDED),
    Case(name="twice", ends=SUCCEEDED),
    Case(name="then-error", ends=SUCCEEDED),
    Case(name="error-first", ends=FAILED),
    Case(name="error", ends=FAILED, arguments={"code": -32001}),
    _results("is-error", FAILED, {"content": [], "isError": True}),
    _results("breaks-its-schema", SUCCEEDED, {"structuredContent": {"id": "?"}}, tool="strict"),
    _results("wants-input", FAILED, {"resultType": "input_required", "requestState": "s"}),
    _results("task", PENDING, {"task": {"taskId": "t-1", "status": "working"}}),
    # it gives a task
    _task("task-in-time", SUCCEEDED),
    _task("task-late", PENDING, execution_s=HURRIED_S, late=True, after=5),
    _task("task-never", PENDING, execution_s=HURRIED_S, after=1_000_000),
    _task("task-fails", FAILED, ends={"status": "failed"}),
    _task("task-cancelled", FAILED, ends={"status": "cancelled"}),
    _task("task-garbage", PENDING, execution_s=HURRIED_S, ends={"status": ["?"]}),
    _task("task-dies", PENDING, dies=2),
    # its tools change, or it asks
    Case(name="vanish", ends=SUCCEEDED),
    Case(name="vanish-quietly", ends=SUCCEEDED),
    Case(name="asks", ends=SUCCEEDED),
    Case(name="asks-forever", ends=GARBLED),
    # it is hostile before it is called, or beside
    _honest("prints-a-banner", "banner"),
    _honest("floods-stderr", "stderr-flood"),
    _honest("floods-stderr-with-lines", "stderr-lines"),
    _honest("stays", "ignore-eof"),
    _honest("dies-of-the-newer-era", "dies-on-discover"),
    _honest("has-a-broken-schema", "bad-schema"),
    _honest("has-no-list", "no-list", ends=NO_TOOL),
    _honest("has-endless-pages", "pages", ends=NO_TOOL),
    _honest("has-fat-pages", "fat-pages", ends=NO_TOOL),
    _honest("is-mute", "mute", ends=EXPIRED, expires_in_ms=1_500),
)


SAME_KEY: Final[Json] = {
    "idempotent": True,
    "dedupe_horizon_s": 3600,
    "retry": "same-key",
    "retry_attempts": 5,
    "retry_backoff_s": 0.05,
}
PATIENT_S: Final = 8.0
"""The deadline of a call whose first attempt is not answered in time, and whose next one must be."""

C = TypeVar("C", bound=Case)

_ONCE: Final = ("answers-and-dies", "twice", "then-error", "task-in-time")
"""Cases that the first attempt ends well."""
_DIES: Final = ("dies-after", "half", "closes", "freezes", "task-dies")
_GARBLES: Final = (
    "garbage",
    "garbage-flood",
    "big",
    "endless",
    "bomb",
    "deep",
    "cut",
    "not-a-number",
    "no-code",
)
_IS_SILENT: Final = ("silent", "chatters", "asks-forever", "answers-nobody", "wrong-id", "task-never")
_LOST_FOR_A_WHILE: Final = frozenset({*_DIES, *_GARBLES, *_IS_SILENT, "task-garbage"})
"""Cases whose first attempt has an effect that nobody hears of."""


def again(case: C, ends: str, *options: str, **arguments: object) -> C:
    """Return the case with a contract that has it called again, and these options and arguments."""
    return replace(
        case,
        name=f"again-{case.name}",
        ends=ends,
        arguments={"mode": case.name, **case.arguments, **arguments},
        options=(*case.options, *options),
        execution_s=PATIENT_S if case.execution_s == HURRIED_S else case.execution_s,
        contract=SAME_KEY,
    )


RETRIED_CASES: Final = (
    *(
        again(case, SUCCEEDED, "deduplicates")
        for case in STDIO_CASES
        if case.name in {*_ONCE, *_LOST_FOR_A_WHILE}
    ),
    *(again(case, SUCCEEDED, "deduplicates", seconds=11) for case in STDIO_CASES if case.name == "late"),
    *(again(case, LOST, "deduplicates") for case in STDIO_CASES if case.name == "dies-before"),
)
"""Cases of servers that know the keys they have seen, and tell of what has happened."""
DOUBLING: Final = tuple(again(case, LOST) for case in STDIO_CASES if case.name == "dies-after")
"""What comes of a contract that promises too much: the control."""
TRIED_AGAIN: Final = frozenset(f"again-{name}" for name in (*_LOST_FOR_A_WHILE, "late"))
"""Those that need more than one attempt, whatever else happens."""
