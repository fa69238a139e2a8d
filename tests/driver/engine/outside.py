"""The world outside an operation: a provider that remembers what really left, and what it answered to it."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

import anyio
import anyio.lowlevel

from driver.core.attempts import Answered, HttpStatus, NotSent, PeerError, Phase, Report, Silence, ToolCall
from driver.core.contracts import Contract, MetaKey
from driver.providers.protocol import Progress
from tests.driver.engine.rig import Clock, ScriptedProvider

REFUSED = NotSent(reason="connect_failed", message="refused")
HORIZON_S = 100.0
EXECUTION_S = 30.0

PLAIN = Contract(declared=True, execution_s=EXECUTION_S)
SAFE = replace(
    PLAIN,
    idempotent=True,
    dedupe_horizon_s=HORIZON_S,
    key_carrier=MetaKey(),
    retry="same-key",
    retry_attempts=4,
    retry_backoff_s=10.0,
)
ASKED = replace(PLAIN, approval="required", approval_expires_s=60.0)
CONTRACTS = {
    "plain": PLAIN,
    "safe": SAFE,
    "safe, and errors prove": replace(SAFE, error_means="none"),
    "asked": ASKED,
}

Mode = Literal[
    "succeed",
    "fail",
    "busy",
    "lost",
    "refuse",
    "refuse early",
    "hang early",
    "hang before",
    "hang after",
]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass
class Execution:
    """An attempt of which a byte has left."""

    call: ToolCall
    at: datetime
    contract: Contract
    life: int
    """Of the process that sent it."""
    answer: Literal["success", "error", "silence"] = "silence"


@dataclass
class World(ScriptedProvider):
    """The provider's side: what it was sent, and what it answered."""

    mode: Mode = "succeed"
    clock: Clock = field(default_factory=Clock)
    contract: Contract = PLAIN
    life: int = 0
    executions: list[Execution] = field(default_factory=list[Execution])

    def ready(self, call: ToolCall) -> bool:
        return self.mode not in ("refuse early", "hang early")

    async def prepare(self, call: ToolCall) -> NotSent | None:
        if self.mode == "hang early":
            await self.gate.wait()
        return REFUSED if self.mode == "refuse early" else None

    async def dispatch(self, call: ToolCall, progress: Progress) -> Report:
        await anyio.lowlevel.checkpoint_if_cancelled()
        mode = self.mode
        progress(Phase.CONNECTING)
        if mode == "refuse":
            return REFUSED
        if mode == "hang before":
            await self.gate.wait()
        seen = Execution(call, self.clock(), self.contract, self.life)
        self.executions.append(seen)
        progress(Phase.WRITING)
        progress(Phase.WRITTEN)
        if mode == "hang after":
            await self.gate.wait()
        return self._answer(mode, seen, progress)

    def _answer(self, mode: Mode, seen: Execution, progress: Progress) -> Report:
        if mode == "lost":
            return Silence(cause="connection_lost", message="gone")
        progress(Phase.ANSWERED)
        seen.answer = "error" if mode in ("fail", "busy") else "success"
        if mode == "busy":
            return HttpStatus(status=503, result={})
        return PeerError(code=-1, message="no") if mode == "fail" else Answered(result={"content": []})
