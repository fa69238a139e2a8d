"""Query parameters and bodies, from text to typed values: the edge where requests are validated.

Part of `driver.local`; imports pydantic, starlette, `driver.core`, the store's vocabulary and its own errors.
Everything is checked before state is looked at. An unknown parameter, or one that stands twice, is an error:
a filter that is misspelt must not list everything.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from driver.core.fields import place, wording
from driver.local.errors import Code, Problem
from driver.local.exports import Format
from store.events import OperationNotExecuted, OperationUnknown
from store.lifecycle import Effect, State

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 500
SEQ_MAX: Final = 2**63 - 1
"""The largest integer of SQLite."""
FILTERS_DIGITS: Final = 16
"""Hex digits of the digest by which a cursor knows its filters: enough to notice a mistake."""


def _reasons() -> Iterator[str]:
    """The words of docs/local-api.md that no event has, then the reasons that events have."""
    yield "failed_uncertain"
    yield "stale_in_flight"
    for event in (OperationUnknown, OperationNotExecuted):
        yield from get_args(get_type_hints(event)["reason"])


REASONS: Final = tuple(dict.fromkeys(_reasons()))
"""Every value of the filter `reason`."""


def _whole(text: object) -> int:
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        raise PydanticCustomError("whole", "must be a whole number in decimal digits")
    return int(text)


def _boolean(text: object) -> bool:
    if text not in ("true", "false"):
        raise PydanticCustomError("flag", "must be true or false")
    return text == "true"


def _reason(text: object) -> str:
    if text not in REASONS:
        raise PydanticCustomError("reason", "must be one of {reasons}", {"reasons": ", ".join(REASONS)})
    return str(text)


Limit = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=LIMIT_MAX)]
Seq = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=SEQ_MAX)]
Flag = Annotated[bool, BeforeValidator(_boolean)]
Reason = Annotated[str, BeforeValidator(_reason), WithJsonSchema({"enum": [*REASONS]})]
Id = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")]
"""Ids as the protocol has them (docs/protocol.md, section 4)."""
ToolText = Annotated[str, Field(min_length=1, max_length=512)]
JournalIdText = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
CursorText = Annotated[str, Field(min_length=1, max_length=64)]


class Query(BaseModel):
    """What every set of parameters holds to."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Query):
    """No parameters at all."""


class PageQuery(Query):
    """A page of a list. `cursor` is the `next` of the page before."""

    limit: Limit = LIMIT_DEFAULT
    cursor: CursorText | None = None


class OperationsQuery(PageQuery):
    """`GET /v1/operations`."""

    state: State | None = None
    effect: Effect | None = None
    run: Id | None = None
    tool: ToolText | None = None
    unsettled: Flag = False
    reason: Reason | None = None


class EventsQuery(Query):
    """`GET /v1/events`: everything after the event `after`, and with `follow` what is yet to come.

    `journal_id` names the history that `after` counts in.
    """

    after: Seq = 0
    journal_id: JournalIdText | None = None
    follow: Flag = False


class ExportQuery(Query):
    """`GET /v1/export`."""

    format: Format = "ndjson"


Q = TypeVar("Q", bound=Query)

ListName = Literal["operations", "runs", "dead-letters"]


def parse_query(model: type[Q], request: Request) -> Q:
    """Return the request's parameters as `model`. Raises the 422 `Problem` that names every wrong one."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) != len(pairs):
        names = [name for name, _ in pairs]
        twice = {name: "stands more than once" for name in names if names.count(name) > 1}
        raise _invalid(twice)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        known = model.model_fields
        raise _invalid({place(item)[:64]: wording(item, known) for item in error.errors()}) from None


def cursor_text(name: ListName, query: PageQuery, position: int | None) -> str | None:
    """Return `position` in the list `name`, under the filters of `query`, as an opaque cursor.

    None, the list's end, stays None.
    """
    if position is None:
        return None
    plain = f"{name}.{_filters(query)}.{position}".encode("ascii")
    return base64.urlsafe_b64encode(plain).decode("ascii").rstrip("=")


def cursor_position(name: ListName, query: PageQuery) -> int | None:
    """Return what `cursor_text` made the cursor of `query` from; None where it has none.

    Raises the 422 `Problem` for any other, one of another list or of other filters among them.
    """
    if query.cursor is None:
        return None
    padded = query.cursor + "=" * (-len(query.cursor) % 4)
    try:
        plain = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        plain = ""
    found = re.fullmatch(rf"{re.escape(name)}\.([0-9a-f]+)\.([0-9]{{1,19}})", plain, re.ASCII)
    position = int(found[2]) if found else -1
    if found is None or not 0 <= position <= SEQ_MAX:
        raise _invalid({"cursor": "must be the `next` of an earlier page of the same list"})
    if found[1] != _filters(query):
        raise _invalid(
            {"cursor": "is of the same list under other filters: repeat those, or begin without a cursor"}
        )
    return position


def _filters(query: PageQuery) -> str:
    """What tells the filters of one query from those of another."""
    filters = query.model_dump_json(exclude={"limit", "cursor"})
    return hashlib.sha256(filters.encode()).hexdigest()[:FILTERS_DIGITS]


def _invalid(errors: dict[str, str]) -> Problem:
    detail = "; ".join(f"{name}: {text}" for name, text in errors.items())
    return Problem(Code.INVALID_QUERY, detail, errors=errors)
