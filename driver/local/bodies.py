"""Request bodies, from bytes to typed values: the edge where writes are validated.

Part of `driver.local`; imports anyio, pydantic, starlette, `driver.core` and its own siblings. A body is
optional where every member of its model is.
"""

from typing import TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from driver.core import strictjson
from driver.core.fields import place, wording
from driver.local.errors import Code, Problem
from driver.local.settings import LocalLimits


class Body(BaseModel):
    """What every body holds to."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class NoBody(Body):
    """Nothing, or `{}`."""


B = TypeVar("B", bound=Body)


async def parse_body(model: type[B], request: Request, limits: LocalLimits) -> B:
    """Return the request's body as `model`; none at all is `{}`.

    Raises the 413, 408 or 422 `Problem`. Cancelling it leaves the body unread.
    """
    raw = await _read(request, limits)
    try:
        return model.model_validate(strictjson.loads(raw) if raw else {})
    except strictjson.NotStrictJson as error:
        raise _invalid({"body": error.message}) from None
    except ValidationError as error:
        known = model.model_fields
        found = {place(item)[:64] or "body": wording(item, known) for item in error.errors()}
        raise _invalid(found) from None


async def _read(request: Request, limits: LocalLimits) -> bytes:
    said = int(request.headers.get("content-length", "0"))  # h11 lets only digits pass
    if said > limits.body_bytes_max:
        raise _too_large(limits)  # at once: who asks `Expect: 100-continue` need not send it
    raw = bytearray()
    with anyio.move_on_after(limits.request_s) as late:
        async for piece in request.stream():
            raw += piece
            if len(raw) > limits.body_bytes_max:
                raise _too_large(limits)
    if late.cancelled_caught:
        detail = f"the body was not whole within {limits.request_s:g} s"
        raise Problem(Code.REQUEST_TIMEOUT, detail)
    return bytes(raw)


def _too_large(limits: LocalLimits) -> Problem:
    return Problem(Code.BODY_TOO_LARGE, f"a body may have {limits.body_bytes_max:,} bytes")


def _invalid(errors: dict[str, str]) -> Problem:
    detail = "; ".join(f"{name}: {text}" for name, text in errors.items())
    return Problem(Code.INVALID_BODY, detail, errors=errors)
