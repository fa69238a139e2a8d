"""Successful answers: JSON from typed values.

Part of `driver.local`; imports starlette and the store's vocabulary. All text is ASCII, so that no terminal
and no odd string can break it.
"""

import json
from collections.abc import Iterable
from http import HTTPStatus

from starlette.responses import Response

from store.records import JsonValue


def encoded(value: JsonValue) -> bytes:
    """Return `value` as JSON text."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_answer(value: JsonValue) -> Response:
    """Return `value` as a 200."""
    return text_answer(encoded(value))


def created_answer(value: JsonValue) -> Response:
    """Return `value` as a 201: what it says was recorded by this request."""
    return Response(encoded(value), HTTPStatus.CREATED, media_type="application/json")


def accepted_answer(value: JsonValue) -> Response:
    """Return `value` as a 202: what was asked is recorded, and done or under way."""
    return Response(encoded(value), HTTPStatus.ACCEPTED, media_type="application/json")


def text_answer(text: bytes) -> Response:
    """Return JSON text as a 200."""
    return Response(text, media_type="application/json")


def page_answer(items: Iterable[bytes], cursor: str | None) -> Response:
    """Return a part of a list, of encoded items: `truncated` is true exactly when there is a next part."""
    rest = encoded({"next": cursor, "truncated": cursor is not None})
    return text_answer(b'{"items":[' + b",".join(items) + b"]," + rest[1:])
