"""Beside a call that waits: its progress, that it waits for a person, and the question to one in the client.

Part of `driver.gateway`; imports the SDK's server side, `driver.core` and its siblings.

A client that offers elicitation can be asked there, in the way of its era: by a request of ours in the older
one, by a result that wants input in the newer one. Whoever answers there speaks through the process that made
the call. So nobody is asked unless `allow_self_approval` lets that uid decide.
"""

import sys
from collections import OrderedDict
from typing import Any, Final, TypeGuard, cast
from uuid import uuid4

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from driver.core.commands import ApproveData
from driver.gateway.limits import GatewayLimits
from driver.gateway.outcomes import AskUser, Outcome
from driver.gateway.runs import Speaker
from driver.gateway.sources import Sources
from driver.gateway.waiting import Wait
from store.records import CommandId, JsonObject, JsonValue

SAID_MAX: Final = 64
"""Words about progress that wait to be passed on; more than this are left out."""
ISSUED_MAX: Final = 1_024
"""Questions to users that wait for their answers."""
QUESTION: Final = "approval"
STEP: Final = 0.001
"""Between two words of ours about a call that waits: progress has to grow."""
NUMBER_MAX: Final = sys.float_info.max
"""Of progress, either way."""

Context = ServerRequestContext[Any, Any]

log = structlog.stdlib.get_logger(__name__)

_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "deny"], "title": "Decision"},
        "reason": {"type": "string", "title": "Reason"},
    },
    "required": ["decision"],
}


class Approvals:
    """Records what users decide in their clients, where they may."""

    def __init__(self, sources: Sources, *, allowed: bool) -> None:
        self._sources = sources
        self.allowed: Final = allowed
        self._closed: OrderedDict[str, None] = OrderedDict()
        """Requests whose question a user has closed: they are not put to one again."""
        self._issued: OrderedDict[str, tuple[Speaker, Wait, str]] = OrderedDict()

    def may_ask(self, approval_id: str) -> bool:
        """Whether a user may be asked about a request in the client."""
        return self.allowed and approval_id not in self._closed

    def question(self, speaker: Speaker, wait: Wait, approval_id: str) -> AskUser:
        """Return the result that has a client of the newer era ask its user, and come again with the answer.

        What it comes with counts for this call alone.
        """
        state = uuid4().hex
        self._issued[state] = (speaker, wait, approval_id)
        while len(self._issued) > ISSUED_MAX:
            self._issued.popitem(last=False)
        params: JsonObject = {"mode": "form", "message": about(wait), "requestedSchema": _SCHEMA}
        requests: JsonObject = {QUESTION: {"method": "elicitation/create", "params": params}}
        return AskUser(
            result={"resultType": "input_required", "inputRequests": requests, "requestState": state}
        )

    async def take(self, params: JsonObject, speaker: Speaker, label: str | None) -> CommandId | None:
        """Record the decision that comes with a call; one that nobody was asked for is nothing.

        Returns the command of the call that it is about, which then is no new one; else None.
        """
        state, responses = params.get("requestState"), params.get("inputResponses")
        issued = self._issued.pop(state, None) if isinstance(state, str) else None
        answer = responses.get(QUESTION) if isinstance(responses, dict) else None
        if issued is None or issued[0].run_id != speaker.run_id:
            return None
        _, wait, approval_id = issued
        if isinstance(answer, dict):
            found = answer.get("content")
            content = found if isinstance(found, dict) else {}
            await self.decide(speaker, wait, approval_id, str(answer.get("action")), content, label)
        return wait.command_id

    async def decide(
        self,
        speaker: Speaker,
        wait: Wait,
        approval_id: str,
        action: str,
        content: JsonObject,
        label: str | None,
    ) -> None:
        """Record a user's decision as theirs; without one (the question was closed) nothing is decided."""
        decision = _decision(action, content)
        if decision is None:
            self._closed[approval_id] = None
            while len(self._closed) > ISSUED_MAX:
                self._closed.popitem(last=False)
            return
        reason = content.get("reason")
        data: JsonObject = {
            "operation_id": wait.operation_id,
            "approval_id": approval_id,
            "decision": decision,
            "approver": f"user:{speaker.uid}",
            "reason": reason[:500] if isinstance(reason, str) and reason else None,
            "label": label,
        }
        await self._sources.submit(ApproveData.KIND, wait.run_id, data)


def _decision(action: str, content: JsonObject) -> str | None:
    match action, content.get("decision"):
        case "accept", "approve":
            return "grant"
        case ("accept", "deny") | ("decline", _):
            return "deny"
        case _:
            return None


def about(wait: Wait) -> str:
    """Return the question for a person."""
    return (
        f"May {wait.tool} be called now? It needs an approval (operation {wait.operation_id}, run "
        f"{wait.run_id}). 'effectd show {wait.operation_id}' says with what."
    )


class Company:
    """Keeps one client company while its call waits. Implements `driver.gateway.calls.Asker`."""

    def __init__(self, ctx: Context, speaker: Speaker, approvals: Approvals, limits: GatewayLimits) -> None:
        self._ctx = ctx
        self._speaker = speaker
        self._approvals = approvals
        self._limits = limits
        self._last = -1.0
        meta = ctx.meta
        follows = meta is not None and meta.get("progress_token", meta.get("progressToken")) is not None
        self._words = anyio.create_memory_object_stream[JsonObject](SAID_MAX) if follows else None

    @property
    def follows(self) -> bool:
        """See `Asker.follows`."""
        return self._words is not None

    def progressed(self, said: JsonObject) -> None:
        """See `Asker.progressed`."""
        assert self._words is not None, "it is told only if it follows"
        try:
            self._words[0].send_nowait(said)
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.debug("progress_dropped")

    async def meanwhile(self, wait: Wait) -> Outcome | None:
        """See `Asker.meanwhile`."""
        question: Outcome | None = None
        async with anyio.create_task_group() as tasks:
            if self._words is not None:
                tasks.start_soon(self._pass_on, *self._words)
            question = await self._wait(wait, tasks)
            tasks.cancel_scope.cancel()
        return question

    async def _wait(self, wait: Wait, tasks: TaskGroup) -> Outcome:
        """Say that a person is waited for, while one is. Returns the question, where a result has to ask."""
        asked: str | None = None
        while True:
            if wait.approval_id is not None:
                await self._say(wait)
                if wait.approval_id != asked and self._may_ask(wait.approval_id):
                    asked = wait.approval_id
                    if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                        return self._approvals.question(self._speaker, wait, asked)
                    tasks.start_soon(self._ask, wait, asked)
            with anyio.move_on_after(self._limits.progress_s if wait.approval_id else None):
                await wait.news()

    async def _pass_on(
        self, send: MemoryObjectSendStream[JsonObject], receive: MemoryObjectReceiveStream[JsonObject]
    ) -> None:
        async with send, receive:
            async for said in receive:
                progress, total, message = said.get("progress"), said.get("total"), said.get("message")
                if _is_number(progress) and progress > self._last:
                    self._last = progress
                    await self._ctx.session.report_progress(
                        progress,
                        total if _is_number(total) else None,
                        message if isinstance(message, str) else None,
                    )

    async def _say(self, wait: Wait) -> None:
        """Let the client know that a person is waited for, so that it goes on waiting, too."""
        self._last = max(self._last, 0.0) + STEP
        until = f", until {wait.expires_at}" if wait.expires_at else ""
        message = f"awaiting_approval: {wait.tool} waits for a person's approval ({wait.operation_id}){until}"
        await self._ctx.session.report_progress(self._last, None, message)

    def _may_ask(self, approval_id: str) -> bool:
        capabilities = self._ctx.session.client_capabilities
        offered = None if capabilities is None else capabilities.elicitation
        # who says neither of the two ways of asking takes a form, as there was nothing else in the beginning
        takes_forms = offered is not None and (offered.form is not None or offered.url is None)
        return takes_forms and self._approvals.may_ask(approval_id)

    async def _ask(self, wait: Wait, approval_id: str) -> None:
        try:
            found = await self._ctx.session.elicit_form(
                about(wait), cast("dict[str, Any]", _SCHEMA), related_request_id=self._ctx.request_id
            )
        except (MCPError, ValidationError) as error:
            # the call waits on: somebody else may decide, and what a client garbles is no decision
            log.info("not_elicited", operation_id=wait.operation_id, error=type(error).__name__)
            return
        content = cast("JsonObject", dict(found.content or {}))
        await self._approvals.decide(
            self._speaker, wait, approval_id, found.action, content, client_name(self._ctx)
        )


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    """Whether a number is one that every client can hold: JSON has others, at which some fall over."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= NUMBER_MAX


def client_name(ctx: Context) -> str | None:
    """Return what the client calls itself; None where it does not say."""
    params = ctx.session.client_params
    return None if params is None else params.client_info.name[:256] or None
