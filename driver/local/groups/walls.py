"""`GET /v1/supervisor/walls/{run}` and `POST /v1/runs/{run}/triage`: what a model sees, and to wake it.

Part of `driver.local.groups`.
"""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.core.commands import TriageData
from driver.local import shapes
from driver.local.answers import accepted_answer, json_answer
from driver.local.bodies import NoBody, parse_body
from driver.local.errors import Code, not_found
from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service
from store.records import RunId


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [
        Route("/v1/supervisor/walls/{run_id}", partial(_wall, service), methods=["GET"]),
        Route("/v1/runs/{run_id}/triage", partial(_triage, service), methods=["POST"]),
    ]


async def _wall(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    wanted = RunId(request.path_params["run_id"])
    wall = await service.wall(wanted)
    if wall is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    return json_answer(shapes.wall(wall, service.sources.triage_model))


async def _triage(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    await parse_body(NoBody, request, service.limits)
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    done = await service.submit(TriageData.KIND, wanted, {})
    return accepted_answer({"command_id": done.command_id, "run_id": wanted})
