"""Refusals as RFC 9457 problems, whoever refuses: a handler, the router, or a bug of ours.

Part of `driver.local`; imports starlette and its own errors. No answer ever holds a traceback, or an
exception's text: that may quote what a caller sent.
"""

from http import HTTPStatus
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from driver.local.errors import Code, Problem

PROBLEM_JSON: Final = "application/problem+json"

_ROUTER: Final = {
    HTTPStatus.NOT_FOUND: (Code.NO_SUCH_PATH, "there is nothing at this path: see docs/local-api.md"),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        Code.METHOD_NOT_ALLOWED,
        "this path does not take that method: see the Allow header",
    ),
}
_INTERNAL: Final = Problem(
    Code.INTERNAL,
    "a bug in effectd: nothing was changed by this request. Please report it with the daemon's log",
)


def as_json(problem: Problem) -> dict[str, object]:
    """Return the members of the problem's body."""
    members: dict[str, object] = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "code": problem.code,
        "detail": problem.detail,
    }
    if problem.errors:
        members["errors"] = [{"name": name, "message": text} for name, text in problem.errors.items()]
    return members


def response(problem: Problem) -> Response:
    """Return the answer that says `problem`."""
    return JSONResponse(
        as_json(problem), status_code=problem.status, headers=problem.headers, media_type=PROBLEM_JSON
    )


async def _answer_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return response(problem)


async def _answer_router(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    code, detail = _ROUTER.get(status, (Code.INVALID_REQUEST, status.phrase))
    return response(Problem(code, detail, headers=error.headers))


async def _answer_bug(_: Request, __: Exception) -> Response:
    return response(_INTERNAL)


def handlers() -> dict[int | type[Exception], ExceptionHandler]:
    """Return starlette's exception handlers: every refusal comes out as a problem."""
    return {Problem: _answer_problem, HTTPException: _answer_router, Exception: _answer_bug}
