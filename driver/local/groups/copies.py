"""`POST /v1/backup` and `GET /v1/export`: the live journal, for elsewhere. Nobody else can open it.

Part of `driver.local.groups`. A backup is written by the daemon, and so where its user may write.
"""

from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final

import structlog
from anyio import to_thread
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from driver.local import exports
from driver.local.answers import encoded
from driver.local.bodies import Body
from driver.local.copying import copy_journal
from driver.local.endpoints import read, write
from driver.local.errors import Code, Problem
from driver.local.exports import Format
from driver.local.peers import label_of, peer_of
from driver.local.queries import ExportQuery
from driver.local.service import Service
from driver.local.streams import NDJSON, Emit, LineStream
from store.backup import check_target
from store.errors import BackupExists, BackupRefused
from store.records import JsonObject, OperationRecord, Page
from store.view import View

_log = structlog.stdlib.get_logger(__name__)

PATH_CHARS_MAX: Final = 4_096
"""What Linux takes."""


def _absolute(text: str) -> str:
    if not text.startswith("/") or "\0" in text:
        raise PydanticCustomError("absolute", "must be an absolute path")
    return text


class Wanted(Body):
    """Where the backup is to be: an absolute path at which there is nothing."""

    file: Annotated[str, Field(min_length=1, max_length=PATH_CHARS_MAX), AfterValidator(_absolute)]


async def _backup(service: Service, request: Request, body: Wanted) -> Response:
    """Copy the live journal into a file, verified: lines of progress, and a result."""
    target = Path(body.file)
    try:
        await to_thread.run_sync(check_target, target)
    except BackupRefused as refused:
        code = Code.FILE_EXISTS if isinstance(refused, BackupExists) else Code.FILE_UNWRITABLE
        raise Problem(code, str(refused)) from None
    peer = peer_of(request)
    _log.info("backup_requested", actor=peer.actor, user=await label_of(peer), file=body.file)
    return LineStream(service, partial(_copy, service, target))


async def _copy(service: Service, target: Path, emit: Emit) -> None:
    """Emit lines of type `progress`, then the one of type `result`."""

    async def tell(word: JsonObject) -> None:
        await emit(encoded(word) + b"\n")

    made = await copy_journal(service.sources.journal, target, tell)
    is_made = made.pop("type") == "made"
    _log.info("backup_made" if is_made else "backup_failed", **made)
    await emit(encoded({"type": "result", "ok": is_made, **made}) + b"\n")


async def _export(service: Service, _request: Request, query: ExportQuery) -> Response:
    """Every operation once, oldest first: a line of JSON each, or a table."""
    produce = partial(_operations, service, query.format)
    return LineStream(service, produce, media_type=exports.MEDIA_TYPES[query.format])


async def _operations(service: Service, form: Format, emit: Emit) -> None:
    """Page by page, commits may come between; what is accepted meanwhile comes last."""
    if first := exports.beginning(form):
        await emit(first)
    after: int | None = 0
    while after is not None:
        here = after

        def read(view: View, here: int = here) -> Page[OperationRecord]:
            return view.operations_after(here, exports.PAGE)

        page = await service.read(read)
        if page.items:
            await emit(await to_thread.run_sync(exports.lines, page.items, form))
        after = page.next


ENDPOINTS: Final = (
    write(
        "/v1/backup",
        _backup,
        body=Wanted,
        answers={HTTPStatus.OK: NDJSON},
        problems=(Code.FILE_EXISTS, Code.FILE_UNWRITABLE),
    ),
    read("/v1/export", _export, query=ExportQuery, answer=tuple(exports.MEDIA_TYPES.values())),
)
