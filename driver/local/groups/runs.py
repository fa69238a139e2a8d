"""`/v1/runs` and `/v1/commands`: what operations belong to.

Part of `driver.local.groups`. A run's content is erased here, too.
"""

from functools import partial
from typing import cast

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.core.commands import EraseData
from driver.local import shapes
from driver.local.answers import accepted_answer, encoded, json_answer, page_answer
from driver.local.bodies import NoBody, parse_body
from driver.local.counting import on_wire
from driver.local.errors import Code, not_found
from driver.local.peers import label_of, peer_of
from driver.local.queries import NoQuery, PageQuery, cursor_position, cursor_text, parse_query
from driver.local.service import Service
from store.records import (
    CommandId,
    CommandRecord,
    DeliveryRecord,
    JsonObject,
    RunId,
    RunRecord,
)
from store.view import View

_log = structlog.stdlib.get_logger(__name__)


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [
        Route("/v1/runs", partial(_list_runs, service), methods=["GET"]),
        Route("/v1/runs/{run_id}", partial(_show_run, service), methods=["GET"]),
        Route("/v1/runs/{run_id}/erase", partial(_erase_run, service), methods=["POST"]),
        Route("/v1/commands/{command_id}", partial(_show_command, service), methods=["GET"]),
    ]


async def _list_runs(service: Service, request: Request) -> Response:
    query = parse_query(PageQuery, request)
    before = cursor_position("runs", query.cursor)
    page = await service.read(lambda view: view.runs(before, query.limit))
    items = [encoded(shapes.run(record)) for record in page.items]
    return page_answer(items, cursor_text("runs", page.next))


async def _show_run(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    wanted = RunId(request.path_params["run_id"])

    def read(view: View) -> tuple[RunRecord | None, tuple[RunId, ...]]:
        return view.run(wanted), view.resumed(wanted)

    record, resumes = await service.read(read)
    if record is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    return json_answer(shapes.run_alone(record, resumes))


async def _erase_run(service: Service, request: Request) -> Response:
    """Answer with what was erased, and what was kept: as the receipt of `run.erase` says it."""
    parse_query(NoQuery, request)
    await parse_body(NoBody, request, service.limits)
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    peer = peer_of(request)
    _log.info("erasure_requested", run_id=wanted, actor=peer.actor, user=await label_of(peer))
    done = await service.submit(EraseData.KIND, wanted, {})
    result = cast("JsonObject", done.result)
    return accepted_answer({"command_id": done.command_id, **result})


async def _show_command(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    wanted = CommandId(request.path_params["command_id"])

    def read(view: View) -> tuple[CommandRecord | None, tuple[DeliveryRecord, ...]]:
        found = view.command(wanted)
        return None if found is None else on_wire(view, found), view.deliveries(wanted)

    record, deliveries = await service.read(read)
    if record is None:
        raise not_found(Code.COMMAND_NOT_FOUND, "command", wanted)
    return json_answer(
        {**shapes.command(record), "deliveries": [shapes.delivery(delivery) for delivery in deliveries]}
    )
