"""`/v1/runs` and `/v1/commands`: what operations belong to.

Part of `driver.local.groups`. A run's content is erased here, too.
"""

from http import HTTPStatus
from typing import Final, cast

import structlog
from starlette.requests import Request
from starlette.responses import Response

from driver.core.commands import EraseData
from driver.local import shapes
from driver.local.answers import accepted_answer, encoded, json_answer, page_answer
from driver.local.bodies import NoBody
from driver.local.counting import on_wire
from driver.local.endpoints import COMMAND_PROBLEMS, read, write
from driver.local.errors import Code, not_found
from driver.local.peers import label_of, peer_of
from driver.local.published import CommandAlone, Erased, Page, Run, RunAlone
from driver.local.queries import NoQuery, PageQuery, cursor_position, cursor_text
from driver.local.service import Service
from store.records import (
    CommandId,
    CommandRecord,
    JsonObject,
    RunId,
    RunRecord,
)
from store.view import View

_log = structlog.stdlib.get_logger(__name__)


async def _list_runs(service: Service, _request: Request, query: PageQuery) -> Response:
    """A page of runs, the one that began last first."""
    before = cursor_position("runs", query)
    page = await service.read(lambda view: view.runs(before, query.limit))
    items = [encoded(shapes.run(record)) for record in page.items]
    return page_answer(items, cursor_text("runs", query, page.next))


async def _show_run(service: Service, request: Request, _: NoQuery) -> Response:
    """One run, and the runs that it resumes."""
    wanted = RunId(request.path_params["run_id"])

    def read(view: View) -> tuple[RunRecord | None, tuple[RunId, ...]]:
        return view.run(wanted), view.resumed(wanted)

    record, resumes = await service.read(read)
    if record is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    return json_answer(shapes.run_alone(record, resumes))


async def _erase_run(service: Service, request: Request, _: NoBody) -> Response:
    """Erase what is settled and acknowledged of the run; say what was erased, and what was kept."""
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    peer = peer_of(request)
    _log.info("erasure_requested", run_id=wanted, actor=peer.actor, user=await label_of(peer))
    done = await service.submit(EraseData.KIND, wanted, {})
    result = {"run_id": wanted, "erased": None, "kept": None} if done.result is None else done.result
    return accepted_answer({"command_id": done.command_id, **cast("JsonObject", result)})


async def _show_command(service: Service, request: Request, _: NoQuery) -> Response:
    """One command, with its deliveries."""
    wanted = CommandId(request.path_params["command_id"])

    def read(view: View) -> JsonObject | None:
        found = view.command(wanted)
        return None if found is None else _command_alone(view, found)

    answer = await service.read(read)
    if answer is None:
        raise not_found(Code.COMMAND_NOT_FOUND, "command", wanted)
    return json_answer(answer)


def _command_alone(view: View, record: CommandRecord) -> JsonObject:
    walk = view.walk(record.command_id)
    return {
        **shapes.command(on_wire(view, record)),
        "deliveries": [shapes.delivery(delivery) for delivery in view.deliveries(record.command_id)],
        "erasing": None if walk is None else shapes.erasing(walk, view.erasures_left()),
    }


ENDPOINTS: Final = (
    read("/v1/runs", _list_runs, query=PageQuery, answer=Page[Run]),
    read("/v1/runs/{run_id}", _show_run, query=NoQuery, answer=RunAlone, problems=(Code.RUN_NOT_FOUND,)),
    write(
        "/v1/runs/{run_id}/erase",
        _erase_run,
        answers={HTTPStatus.ACCEPTED: Erased},
        problems=(Code.RUN_NOT_FOUND, *COMMAND_PROBLEMS),
    ),
    read(
        "/v1/commands/{command_id}",
        _show_command,
        query=NoQuery,
        answer=CommandAlone,
        problems=(Code.COMMAND_NOT_FOUND,),
    ),
)
