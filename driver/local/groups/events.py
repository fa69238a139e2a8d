"""`/v1/events`: the journal itself, line by line, as far as it goes or as it grows.

Part of `driver.local.groups`.
"""

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.local import shapes
from driver.local.endpoints import read
from driver.local.errors import Code, Problem
from driver.local.follower import Follower
from driver.local.queries import SEQ_MAX, EventsQuery
from driver.local.service import Service
from driver.local.streams import NDJSON, Emit, LineStream
from store.records import JournalId, StoredEvent
from store.view import View


async def _events(service: Service, _request: Request, query: EventsQuery) -> Response:
    """The journal's events from a cursor on, a line of JSON each, as far as it goes or as it grows."""
    present, base, last = await service.read(lambda view: (view.journal_id, view.base, view.last_seq))
    if query.journal_id not in (None, present):
        raise Problem(Code.HISTORY_CHANGED, _advice(present, last - base))
    # the file counts on where another history begins: so the stream goes on there, too
    after = min(base + query.after, SEQ_MAX)
    if query.follow:
        return LineStream(service, partial(_follow, service, after))
    return LineStream(service, partial(_until, service, after, last))


def _advice(present: JournalId, last: int) -> str:
    return (
        f"another history of this journal has begun: it is {present} now, up to event {last}; "
        "begin at its beginning, with its journal_id and after=0"
    )


async def _follow(service: Service, after: int, emit: Emit) -> None:
    with Follower(service, after) as follower:
        while True:
            await emit(shapes.ndjson(await follower.next_events()))


async def _until(service: Service, after: int, last: int, emit: Emit) -> None:
    """Page by page, commits may come between: up to the event `last`, and no further."""
    limits = service.limits
    while after < last:
        here = after

        def read(view: View, here: int = here) -> tuple[StoredEvent, ...]:
            return view.events(here, limits.batch_events_max, limits.batch_bytes_max)

        events = [event for event in await service.read(read) if event.seq <= last]
        if not events:
            return
        await emit(shapes.ndjson(events))
        after = events[-1].seq


ENDPOINTS: Final = (
    read("/v1/events", _events, query=EventsQuery, answer=NDJSON, problems=(Code.HISTORY_CHANGED,)),
)
