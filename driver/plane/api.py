"""The plane's HTTP API: what operators and other programs say to it.

Part of `driver.plane`; imports starlette, pydantic, `driver.core` and its siblings.

    POST /v1/commands                           give a command: 201 new, 200 known already, 409 other content
    GET  /v1/commands/{id}?wait=SECONDS         one command; `wait` holds the answer back until its receipt
    GET  /v1/commands, /v1/receipts, /v1/runs   pages, newest first: ?run=&cursor=&limit=
    GET  /v1/drivers                            who ever said hello
    GET  /v1/events?after=CURSOR&follow=true    all events as NDJSON, in the order in which they arrived

Refusals are RFC 9457 problems with a stable `code`. Who may ask at all is `server`'s to decide.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeVar
from uuid import uuid4

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from driver.core.codec import parse_from_plane
from driver.core.commands import InvalidData, ToolCallData, parse_data
from driver.core.fields import explain
from driver.core.frames import CommandFrame
from driver.core.strictjson import NotStrictJson, dumps_compact, loads
from driver.plane import delivery
from driver.plane.delivery import Submitted
from driver.plane.errors import InvalidSubmission, Problem
from driver.plane.fleet import Fleet
from driver.plane.ledger import Ledger
from driver.plane.views import Reader, View, Wanted

COMMAND_BYTES_MAX: Final = 1_000_000
"""A command's body: with its `delivered_to`, it still fits into a frame that every daemon takes."""
WAIT_S_MAX: Final = 60
"""The longest that one request waits; a client that wants to wait longer asks again."""
EVENTS_PAGE: Final = 256
"""Events read at once for one reader."""

_MEMBERS: Final = frozenset(
    {"command_id", "run_id", "kind", "data", "expires_in_ms", "traceparent", "driver_id"}
)


class _Query(BaseModel):
    """Parameters; one that is unknown is an error, for a misspelt filter must not list everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _PageQuery(_Query):
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    cursor: Annotated[int, Field(ge=0, le=2**63 - 1)] = 2**63 - 1
    run: str | None = None

    @property
    def wanted(self) -> Wanted:
        return Wanted(limit=self.limit, cursor=self.cursor, run=self.run)


class _OneQuery(_Query):
    wait: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0


class _EventsQuery(_Query):
    after: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    follow: bool = False


Q = TypeVar("Q", bound=_Query)
T = TypeVar("T")


class Api:
    """The endpoints. Nothing is kept between two requests."""

    def __init__(self, ledger: Ledger, fleet: Fleet) -> None:
        self._ledger = ledger
        self._fleet = fleet
        self.routes = [
            Route("/v1/commands", self.submit, methods=["POST"]),
            Route("/v1/commands", self.commands, methods=["GET"]),
            Route("/v1/commands/{command_id}", self.command, methods=["GET"]),
            Route("/v1/receipts", self.receipts, methods=["GET"]),
            Route("/v1/runs", self.runs, methods=["GET"]),
            Route("/v1/drivers", self.drivers, methods=["GET"]),
            Route("/v1/events", self.events, methods=["GET"]),
        ]

    async def submit(self, request: Request) -> Response:
        """Keep a command, durably, and wake its driver's session."""
        command, driver_id = _submission(await _body(request))
        outcome = await self._ledger.change(partial(delivery.submit, command=command, driver_id=driver_id))
        match outcome:
            case Submitted.NEW:
                self._fleet.work.ring()
            case Submitted.CONFLICT:
                detail = (
                    f"{command.command_id} was given before, with other content: choose another command_id"
                )
                raise Problem(HTTPStatus.CONFLICT, "conflict", detail)
            case Submitted.RUN_IN_DOUBT:
                detail = "a run that it resumes has something unsettled: wait for its receipts and verdicts"
                raise Problem(HTTPStatus.CONFLICT, "run_in_doubt", detail)
            case Submitted.DRIVER_UNCLEAR:
                detail = (
                    "there are several drivers: name the one that is meant in driver_id (GET /v1/drivers)"
                )
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "driver_required", detail)
            case Submitted.KNOWN:
                pass
        view = await self._read(lambda reader: reader.command(command.command_id))
        return JSONResponse(view, HTTPStatus.CREATED if outcome is Submitted.NEW else HTTPStatus.OK)

    async def command(self, request: Request) -> Response:
        """One command; with `wait`, as soon as it has its receipt, or when the time is up."""
        query = _query(_OneQuery, request)
        command_id = request.path_params["command_id"]
        view: View | None = None
        with anyio.move_on_after(query.wait or None):
            while True:
                rung = self._fleet.news.next
                view = await self._read(lambda reader: reader.command(command_id))
                if view is None or view["receipt_kind"] is not None or not query.wait:
                    break
                await rung.wait()
        if view is None:
            raise Problem(
                HTTPStatus.NOT_FOUND, "unknown_command", f"no command has the id {command_id[:128]}"
            )
        return JSONResponse(view)

    async def commands(self, request: Request) -> Response:
        """A page of commands."""
        wanted = _query(_PageQuery, request).wanted
        return JSONResponse(await self._read(lambda reader: reader.commands(wanted, only_receipts=False)))

    async def receipts(self, request: Request) -> Response:
        """A page of the commands that have their receipt."""
        wanted = _query(_PageQuery, request).wanted
        return JSONResponse(await self._read(lambda reader: reader.commands(wanted, only_receipts=True)))

    async def runs(self, request: Request) -> Response:
        """A page of runs."""
        wanted = _query(_PageQuery, request).wanted
        return JSONResponse(await self._read(lambda reader: reader.runs(wanted)))

    async def drivers(self, request: Request) -> Response:
        """All drivers."""
        _query(_Query, request)
        return JSONResponse(await self._read(Reader.drivers))

    async def events(self, request: Request) -> Response:
        """Events as they came, one a line, each with the cursor that stands for its place."""
        query = _query(_EventsQuery, request)
        lines = self._lines(query.after, follow=query.follow)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _lines(self, after: int, *, follow: bool) -> AsyncIterator[str]:
        while True:
            rung = self._fleet.news.next
            page = await self._read(partial(Reader.events, after=after, limit=EVENTS_PAGE))
            for cursor, body in page:
                yield f'{{"cursor":{cursor},"event":{body}}}\n'
                after = cursor
            if not page:
                if not follow:
                    return
                await rung.wait()

    async def _read(self, question: Callable[[Reader], T]) -> T:
        connected = self._fleet.connected
        return await self._ledger.read(lambda connection: question(Reader(connection, connected)))


def _query(model: type[Q], request: Request) -> Q:
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_query", explain(error)) from None


async def _body(request: Request) -> bytes:
    """The body, given up as soon as it is longer than a command can be."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > COMMAND_BYTES_MAX:
            detail = f"a command has at most {COMMAND_BYTES_MAX:,} bytes"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", detail)
    return bytes(body)


def _submission(body: bytes) -> tuple[CommandFrame, str | None]:
    """The command in a request's body, held to what a daemon would take, and the driver that is meant."""
    try:
        raw = loads(body)
    except NotStrictJson as error:
        raise InvalidSubmission(error.message) from None
    if unknown := ", ".join(sorted(raw.keys() - _MEMBERS)):
        detail = f"there is no member {unknown}; there are {', '.join(sorted(_MEMBERS))}"
        raise InvalidSubmission(detail)
    driver_id = raw.pop("driver_id", None)
    if not isinstance(driver_id, str | None):
        detail = "driver_id: must be a string"
        raise InvalidSubmission(detail)
    minted = {"command_id": f"cmd-{uuid4().hex}", "kind": ToolCallData.KIND}
    frame = parse_from_plane(dumps_compact({**minted, **raw, "type": "command"}))
    if not isinstance(frame, CommandFrame):
        raise InvalidSubmission(getattr(frame, "message", "no command"))
    data = parse_data(frame.kind, frame.data)
    if isinstance(data, InvalidData):
        raise InvalidSubmission(data.message)
    return frame, driver_id


async def answer_problem(_: Request, problem: Exception) -> Response:
    """Return a refusal of ours, or of the router's, as RFC 9457 says."""
    if isinstance(problem, HTTPException):
        status = HTTPStatus(problem.status_code)
        problem = Problem(
            status, status.phrase.lower().replace(" ", "_"), "see docs/plane.md for what there is"
        )
    assert isinstance(problem, Problem)
    body = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "code": problem.code,
        "detail": problem.detail,
    }
    return JSONResponse(body, problem.status, media_type="application/problem+json")
