"""`POST /v1/operations/{id}/probe`, `/retry`, `/compensate`, and `/v1/runs/{id}/compensate`: work for later.

Part of `driver.local.groups`. A 202 says that the command is accepted, durably; what came of it is its
receipt, in `/v1/events`. What can be refused at once is a 409 with the reason.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driver.core.commands import CompensateData, ProbeData, RetryData, RunCompensateData
from driver.local.answers import accepted_answer
from driver.local.bodies import NoBody, parse_body
from driver.local.errors import Code, not_found
from driver.local.queries import NoQuery, parse_query
from driver.local.service import Service
from store.records import OperationId, RunId

KINDS: Final[Mapping[str, str]] = {
    "probe": ProbeData.KIND,
    "retry": RetryData.KIND,
    "compensate": CompensateData.KIND,
}
"""The last part of the path, and the command that it gives."""


def routes(service: Service) -> list[Route]:
    """Return the routes of this group."""
    return [
        Route(f"/v1/operations/{{operation_id}}/{name}", partial(_give, service, kind), methods=["POST"])
        for name, kind in KINDS.items()
    ] + [Route("/v1/runs/{run_id}/compensate", partial(_compensate_run, service), methods=["POST"])]


async def _give(service: Service, kind: str, request: Request) -> Response:
    parse_query(NoQuery, request)
    await parse_body(NoBody, request, service.limits)
    wanted = OperationId(request.path_params["operation_id"])
    operation = await service.read(lambda view: view.operation(wanted))
    if operation is None:
        raise not_found(Code.OPERATION_NOT_FOUND, "operation", wanted)
    done = await service.submit(kind, operation.run_id, {"operation_id": wanted})
    return accepted_answer({"command_id": done.command_id, "operation_id": wanted})


async def _compensate_run(service: Service, request: Request) -> Response:
    parse_query(NoQuery, request)
    await parse_body(NoBody, request, service.limits)
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    done = await service.submit(RunCompensateData.KIND, wanted, {})
    return accepted_answer({"command_id": done.command_id, "run_id": wanted})
