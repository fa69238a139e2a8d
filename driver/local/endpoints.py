"""One path with its method: what it takes, what it answers, and the handler that does it.

Part of `driver.local`; imports starlette, pydantic and its own siblings. An endpoint validates before its
handler runs, with the very models that the OpenAPI document (`driver.local.openapi`) shows: what is said and
what is done are one thing.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.local.bodies import Body, NoBody, parse_body
from driver.local.errors import Code
from driver.local.queries import NoQuery, Query, parse_query
from driver.local.service import Service

Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=Body)

Answer = type[BaseModel] | str | tuple[str, ...]
"""A model in JSON, or the media types of something else."""
Answers = Mapping[HTTPStatus, Answer]

COMMAND_PROBLEMS: Final = (Code.FENCED, Code.UNKNOWN_OPERATION, Code.NOT_READY)
"""What may be refused of any command that is given here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path with its method. `problems`: what its handler may refuse, beside what any may be refused."""

    method: Literal["GET", "POST"]
    path: str
    summary: str
    query: type[Query]
    body: type[Body] | None
    answers: Answers
    problems: tuple[Code, ...]
    serve: Callable[[Service, Request], Awaitable[Response]]

    def route(self, service: Service) -> Route:
        """Return it as a route of the application around `service`."""

        async def endpoint(request: Request) -> Response:
            return await self.serve(service, request)

        return Route(self.path, endpoint, methods=[self.method])


def read(
    path: str,
    handler: Callable[[Service, Request, Q], Awaitable[Response]],
    *,
    query: type[Q],
    answer: Answer,
    problems: tuple[Code, ...] = (),
) -> Endpoint:
    """Return the endpoint of a read."""

    async def serve(service: Service, request: Request) -> Response:
        return await handler(service, request, parse_query(query, request))

    return Endpoint(
        method="GET",
        path=path,
        summary=_summary(handler),
        query=query,
        body=None,
        answers={HTTPStatus.OK: answer},
        problems=problems,
        serve=serve,
    )


def write(
    path: str,
    handler: Callable[[Service, Request, B], Awaitable[Response]],
    *,
    body: type[B] = NoBody,  # type: ignore[assignment]  # a default for the bound, as there is none for B
    answers: Answers,
    problems: tuple[Code, ...] = (),
) -> Endpoint:
    """Return the endpoint of a write: it takes no parameters, and `body`."""

    async def serve(service: Service, request: Request) -> Response:
        parse_query(NoQuery, request)
        return await handler(service, request, await parse_body(body, request, service.limits))

    return Endpoint(
        method="POST",
        path=path,
        summary=_summary(handler),
        query=NoQuery,
        body=body,
        answers=answers,
        problems=problems,
        serve=serve,
    )


def _summary(handler: Callable[..., Any]) -> str:
    """Return the first sentence of a handler's docstring: every handler has one."""
    assert handler.__doc__, "the document says what each path is for"
    return " ".join(handler.__doc__.split("\n\n")[0].split())
