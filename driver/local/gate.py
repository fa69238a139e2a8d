"""What a request must pass before any handler sees it: the socket's rate and permit, and no browser.

Part of `driver.local`; imports anyio, starlette, structlog, `driver.core.targets` and its own siblings.
"""

import re
from enum import StrEnum
from traceback import extract_tb
from typing import Final
from urllib.parse import unquote

import anyio
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from driver.core.targets import take_origin_form
from driver.local import problems
from driver.local.errors import Code, Problem
from driver.local.rates import Bucket
from driver.local.settings import LocalLimits

_log = structlog.stdlib.get_logger(__name__)

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BROWSER_HEADERS: Final = frozenset({b"origin", b"referer"})
_ESCAPED_SLASH: Final = re.compile(rb"%(?=2f)", re.IGNORECASE)


class Permit(StrEnum):
    """What a socket's clients may do."""

    READ = "read"
    ALL = "all"


class Gate:
    """An ASGI application around the API: the same API for both sockets, each behind its own gate."""

    def __init__(self, app: ASGIApp, permit: Permit, limits: LocalLimits) -> None:
        self._app = app
        self._permit = permit
        self._limits = limits
        self._bucket = Bucket(per_s=limits.requests_per_s, burst=limits.requests_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on. What a handler raises was answered already, where that was possible."""
        take_origin_form(scope)
        _keep_slashes(scope)
        refusal = self._refusal(scope)
        if refusal is not None:
            await problems.response(refusal)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            # its text may quote arguments, so only its type and place are logged
            place = extract_tb(error.__traceback__)[-1]
            _log.error(
                "local_request_failed",
                method=scope["method"],
                error=type(error).__name__,
                place=f"{place.filename}:{place.lineno}",
            )
            raise  # uvicorn closes the connection, so that a broken stream cannot look complete

    def _refusal(self, scope: Scope) -> Problem | None:
        wait_s = self._bucket.take(anyio.current_time())
        if wait_s is not None:
            return Problem(
                Code.TOO_MANY_REQUESTS,
                f"this socket is asked too often: ask again in {wait_s} s, and less often from then on",
                headers={"retry-after": str(wait_s)},
            )
        if _head_bytes(scope) > self._limits.header_bytes_max:
            return Problem(
                Code.INVALID_REQUEST,
                f"the request's line and headers may have {self._limits.header_bytes_max:,} bytes",
            )
        if any(name in _BROWSER_HEADERS for name, _ in scope["headers"]):
            return Problem(
                Code.BROWSER_REQUEST,
                "requests with an Origin or Referer header come from web pages, and are refused",
            )
        if self._permit is Permit.READ and scope["method"] not in _READS:
            return Problem(
                Code.READ_ONLY_SOCKET,
                "inspect.sock serves reads only: use operator.sock, which belongs to the operator",
            )
        return None


def _head_bytes(scope: Scope) -> int:
    """Return how long a head was: h11 bounds only one that comes in several pieces."""
    target = len(scope["raw_path"]) + len(scope["query_string"])
    return target + sum(len(name) + len(value) + len(": \r\n") for name, value in scope["headers"])


def _keep_slashes(scope: Scope) -> None:
    """Let a slash that the client escaped stay `%2F` in the path: a part of its segment.

    Routes are matched against what uvicorn has unescaped: `/operations/x%2Fretry` is about what is named
    `x/retry`, and asks for no retry of `x` (RFC 3986, 2.2).
    """
    if _ESCAPED_SLASH.search(scope["raw_path"]):
        scope["path"] = unquote(_ESCAPED_SLASH.sub(b"%25", scope["raw_path"]).decode("ascii"))
