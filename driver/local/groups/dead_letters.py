"""`/v1/dead-letters`: what the plane did not take, and to report it again.

Part of `driver.local.groups`.
"""

from dataclasses import replace
from http import HTTPStatus
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from driver.local import shapes
from driver.local.answers import created_answer, encoded, json_answer, page_answer
from driver.local.bodies import NoBody
from driver.local.endpoints import read, write
from driver.local.errors import Code, not_found
from driver.local.peers import label_of, peer_of
from driver.local.published import Page, Requeued
from driver.local.queries import (
    SEQ_MAX,
    PageQuery,
    cursor_position,
    cursor_text,
)
from driver.local.service import Service
from store.records import DeadLetter, JsonObject
from store.view import View

_log = structlog.stdlib.get_logger(__name__)


async def _list_dead_letters(service: Service, _request: Request, query: PageQuery) -> Response:
    """A page of the events that were parked outside the stream, oldest first."""
    after = cursor_position("dead-letters", query) or 0
    found = await service.read(lambda view: _dead_letters(view, after, query.limit + 1))
    shown = found[: query.limit]
    more = len(found) > len(shown)
    items = [encoded(shapes.dead_letter(record)) for record in shown]
    return page_answer(items, cursor_text("dead-letters", query, shown[-1].seq if more else None))


def _dead_letters(view: View, after: int, limit: int) -> tuple[DeadLetter, ...]:
    """Return those of the present history, as the wire counts them."""
    found = view.dead_letters(view.base + after, limit)
    return tuple(_on_wire(letter, view.base) for letter in found) if view.base else found


def _on_wire(letter: DeadLetter, base: int) -> DeadLetter:
    again = None if letter.requeued_as is None else letter.requeued_as - base
    return replace(letter, seq=letter.seq - base, requeued_as=again)


async def _requeue(service: Service, request: Request, _: NoBody) -> Response:
    """Report an event that the plane did not take again, once: 201; asked again, 200 with the same."""
    text = request.path_params["seq"]
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > SEQ_MAX:
        raise not_found(Code.DEAD_LETTER_NOT_FOUND, "dead letter", text)
    seq = int(text)
    done = await service.requeue(seq)
    peer = peer_of(request)
    if done.recorded:
        _log.info(
            "dead_letter_requeued",
            seq=seq,
            requeued_as=done.requeued_as,
            actor=peer.actor,
            user=await label_of(peer),
        )
    answer: JsonObject = {"seq": seq, "requeued_as": done.requeued_as}
    return created_answer(answer) if done.recorded else json_answer(answer)


ENDPOINTS: Final = (
    read("/v1/dead-letters", _list_dead_letters, query=PageQuery, answer=Page[DeadLetter]),
    write(
        "/v1/dead-letters/{seq}/requeue",
        _requeue,
        answers={HTTPStatus.CREATED: Requeued, HTTPStatus.OK: Requeued},
        problems=(Code.DEAD_LETTER_NOT_FOUND, Code.CONTENT_ERASED, Code.FENCED, Code.NOT_READY),
    ),
)
