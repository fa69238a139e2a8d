"""`GET /v1/supervisor/walls/{run}` and `POST /v1/runs/{run}/triage`: what a model sees, and to wake it.

Part of `driver.local.groups`.
"""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.core.commands import TriageData
from driver.local import shapes
from driver.local.answers import accepted_answer, json_answer
from driver.local.bodies import NoBody
from driver.local.endpoints import COMMAND_PROBLEMS, read, write
from driver.local.errors import Code, not_found
from driver.local.published import RunCommand, Wall
from driver.local.queries import NoQuery
from driver.local.service import Service
from store.records import RunId


async def _wall(service: Service, request: Request, _: NoQuery) -> Response:
    """What a triage model would be shown of a run, now."""
    wanted = RunId(request.path_params["run_id"])
    wall = await service.wall(wanted)
    if wall is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    return json_answer(shapes.wall(wall, service.sources.triage_model))


async def _triage(service: Service, request: Request, _: NoBody) -> Response:
    """Wake the supervisor for a run, before its time."""
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    done = await service.submit(TriageData.KIND, wanted, {})
    return accepted_answer({"command_id": done.command_id, "run_id": wanted})


ENDPOINTS: Final = (
    read("/v1/supervisor/walls/{run_id}", _wall, query=NoQuery, answer=Wall, problems=(Code.RUN_NOT_FOUND,)),
    write(
        "/v1/runs/{run_id}/triage",
        _triage,
        answers={HTTPStatus.ACCEPTED: RunCommand},
        problems=(Code.RUN_NOT_FOUND, *COMMAND_PROBLEMS),
    ),
)
