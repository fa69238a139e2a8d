"""`/v1/operations`: what was called, what may have happened, and the whole story of each.

Part of `driver.local.groups`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from driver.core.identity import compensation_id
from driver.local import published, shapes
from driver.local.answers import encoded, page_answer, text_answer
from driver.local.counting import on_wire
from driver.local.endpoints import read
from driver.local.errors import Code, not_found
from driver.local.queries import NoQuery, OperationsQuery, cursor_position, cursor_text
from driver.local.service import Service
from store.records import OperationFilter, OperationId, OperationRecord, Page, RunId, StoredEvent
from store.view import View

LOOKS_MAX: Final = 32
LOOK_ITEMS_MAX: Final = 50
"""A look may find that many receipts of a frame's size; more are looked for only while the page is small."""


async def _list(service: Service, _request: Request, query: OperationsQuery) -> Response:
    """A page of operations, newest first."""
    before = cursor_position("operations", query)
    wanted = OperationFilter(
        state=query.state,
        effect=query.effect,
        run_id=None if query.run is None else RunId(query.run),
        tool=query.tool,
        unsettled=query.unsettled,
        reason=query.reason,
    )
    items, end = await _collect(service, wanted, before, query.limit)
    return page_answer(items, cursor_text("operations", query, end))


async def _collect(
    service: Service, wanted: OperationFilter, before: int | None, limit: int
) -> tuple[list[bytes], int | None]:
    """Return up to `limit` operations, and the cursor behind them.

    The journal looks at a bounded number of rows at a time, so that commits get their turn: where few
    match, several looks make one page. A page ends early where they were too many, or where it has grown
    too large.
    """
    items: list[bytes] = []
    room = service.limits.page_bytes_max
    for _ in range(LOOKS_MAX):
        page = await _look(service, wanted, before, min(limit - len(items), LOOK_ITEMS_MAX))
        found = [encoded(shapes.operation(record)) for record in page.items]
        items += found
        room -= sum(map(len, found))
        before = page.next
        if before is None or len(items) >= limit or room <= 0:
            break
    return items, before


async def _look(
    service: Service, wanted: OperationFilter, before: int | None, limit: int
) -> Page[OperationRecord]:
    return await service.read(lambda view: view.operations(wanted, before, limit))


async def _show(service: Service, request: Request, _: NoQuery) -> Response:
    """The whole story of one operation."""
    wanted = OperationId(request.path_params["operation_id"])
    story = await service.read(lambda view: _story(service, view, wanted))
    if story is None:
        raise not_found(Code.OPERATION_NOT_FOUND, "operation", wanted)
    withheld = service.sources.withheld(story.operation.tool)
    return text_answer(await to_thread.run_sync(shapes.story, story, withheld))


def _story(service: Service, view: View, operation_id: OperationId) -> shapes.Story | None:
    """Read all that is known about one operation, as of one moment."""
    operation = view.operation(operation_id)
    if operation is None:
        return None
    seqs = view.operation_events(operation_id)
    command = view.command(operation.command_id)
    return shapes.Story(
        operation=operation,
        command=None if command is None else on_wire(view, command),
        data=view.command_data(operation.command_id),
        result=view.result(operation_id),
        deliveries=view.deliveries(operation.command_id),
        attempts=[on_wire(view, item) for item in view.attempts(operation_id)],
        evidence=[on_wire(view, item) for item in view.evidence(operation_id)],
        delegation=view.delegation(operation_id),
        compensation=_compensation(view, operation_id),
        allowed=service.sources.allowed(view, operation),
        seqs=[seq - view.base for seq in seqs if seq > view.base],
        telling=tuple(_telling(view, seqs)),
    )


def _compensation(view: View, operation_id: OperationId) -> OperationRecord | None:
    command = view.command(compensation_id(operation_id))
    found = None if command is None else command.operation_id
    return None if found is None else view.operation(found)


def _telling(view: View, seqs: Iterable[int]) -> Iterator[StoredEvent]:
    """Yield the events whose data no record holds."""
    for seq in seqs:
        event = view.event(seq)
        if event is not None and (event.terminal or event.kind in shapes.TELLING):
            yield on_wire(view, event)


ENDPOINTS: Final = (
    read("/v1/operations", _list, query=OperationsQuery, answer=published.Page[published.Operation]),
    read(
        "/v1/operations/{operation_id}",
        _show,
        query=NoQuery,
        answer=published.OperationAlone,
        problems=(Code.OPERATION_NOT_FOUND,),
    ),
)
