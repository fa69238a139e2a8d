"""`POST /v1/operations/{id}/probe`, `/retry`, `/compensate`, and `/v1/runs/{id}/compensate`: work for later.

Part of `driver.local.groups`. A 202 says that the command is accepted, durably; what came of it is its
receipt, in `/v1/events`. What can be refused at once is a 409 with the reason.
"""

from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from driver.core.commands import CompensateData, ProbeData, RetryData, RunCompensateData
from driver.local.answers import accepted_answer
from driver.local.bodies import NoBody
from driver.local.endpoints import COMMAND_PROBLEMS, write
from driver.local.errors import Code, not_found
from driver.local.published import OperationCommand, RunCommand
from driver.local.service import Service
from store.records import OperationId, RunId


async def _give(service: Service, request: Request, kind: str) -> Response:
    wanted = OperationId(request.path_params["operation_id"])
    operation = await service.read(lambda view: view.operation(wanted))
    if operation is None:
        raise not_found(Code.OPERATION_NOT_FOUND, "operation", wanted)
    done = await service.submit(kind, operation.run_id, {"operation_id": wanted})
    return accepted_answer({"command_id": done.command_id, "operation_id": wanted})


async def _probe(service: Service, request: Request, _: NoBody) -> Response:
    """Run the probe that the tool's contract declares, now."""
    return await _give(service, request, ProbeData.KIND)


async def _retry(service: Service, request: Request, _: NoBody) -> Response:
    """Begin another attempt with the same key, where rule R allows it now."""
    return await _give(service, request, RetryData.KIND)


async def _compensate(service: Service, request: Request, _: NoBody) -> Response:
    """Begin the compensation that the tool's contract declares, once."""
    return await _give(service, request, CompensateData.KIND)


async def _compensate_run(service: Service, request: Request, _: NoBody) -> Response:
    """Compensate the operations of a run, the newest first, up to the first that is not certain."""
    wanted = RunId(request.path_params["run_id"])
    if await service.read(lambda view: view.run(wanted)) is None:
        raise not_found(Code.RUN_NOT_FOUND, "run", wanted)
    done = await service.submit(RunCompensateData.KIND, wanted, {})
    return accepted_answer({"command_id": done.command_id, "run_id": wanted})


_ALIKE: Final = (
    Code.LOOKALIKE_UNSETTLED,
    Code.DUPLICATE_COMPLETED,
    Code.DUPLICATE_FAILED,
    Code.DUPLICATE_UNKNOWN,
)
_STARTING: Final = (
    *COMMAND_PROBLEMS,
    Code.OVERLOADED,
    Code.DRAINING,
    Code.NO_ROOM,
    Code.HISTORY_NOT_CONFIRMED,
)

ENDPOINTS: Final = (
    write(
        "/v1/operations/{operation_id}/probe",
        _probe,
        answers={HTTPStatus.ACCEPTED: OperationCommand},
        problems=(Code.OPERATION_NOT_FOUND, Code.NO_PROBE_DECLARED, Code.STILL_RUNNING, *_STARTING),
    ),
    write(
        "/v1/operations/{operation_id}/retry",
        _retry,
        answers={HTTPStatus.ACCEPTED: OperationCommand},
        problems=(
            Code.OPERATION_NOT_FOUND,
            Code.STILL_RUNNING,
            Code.NOT_ENDED,
            Code.ALREADY_OCCURRED,
            Code.COMPENSATED,
            Code.PARENT_JUDGED,
            Code.ARGUMENTS_ERASED,
            Code.EXPIRED,
            Code.MAY_STILL_LAND,
            Code.NOT_PROVEN_NONE,
            Code.BEST_EFFORT_ONLY,
            Code.NOT_DEDUPLICATED,
            Code.ANOTHER_KEY,
            Code.CLOCK_WENT_BACK,
            Code.PAST_HORIZON,
            *_ALIKE,
            *_STARTING,
        ),
    ),
    write(
        "/v1/operations/{operation_id}/compensate",
        _compensate,
        answers={HTTPStatus.ACCEPTED: OperationCommand},
        problems=(
            Code.OPERATION_NOT_FOUND,
            Code.NOT_ENDED,
            Code.STILL_RUNNING,
            Code.MAY_STILL_LAND,
            Code.NO_COMPENSATION_DECLARED,
            Code.EXPRESSION_FAILED,
            Code.ARGUMENTS_ERASED,
            *_ALIKE,
            *_STARTING,
        ),
    ),
    write(
        "/v1/runs/{run_id}/compensate",
        _compensate_run,
        answers={HTTPStatus.ACCEPTED: RunCommand},
        problems=(Code.RUN_NOT_FOUND, *_STARTING),
    ),
)
