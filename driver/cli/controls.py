"""Operations that are known to have happened: what a probe's self-test must find.

Part of `driver.cli`; imports the store and the client of the local API. They are asked of the daemon where
one runs, and read from its file, under its lock, where none does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from click import ClickException

from driver.cli import doors
from driver.cli.client import LocalClient, Parameters, Unreachable
from driver.cli.replies import Operation, Page, Story
from driver.cli.segments import segment
from driver.config.models import Config
from driver.core.identity import compensation_id
from store.errors import StoreError
from store.lifecycle import State
from store.records import JsonObject, JsonValue, OperationFilter, OperationId
from store.rest import at_rest
from store.view import View

TRIED_MAX: Final = 3
"""Operations of a tool that a probe may look for: the effect of the newest may be gone by now."""
LOOKED_MAX: Final = 50
"""Operations of a tool that are looked through for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """An operation that succeeded, and was not taken back. `arguments` is None where they were erased."""

    operation_id: OperationId
    arguments: JsonObject | None
    receipt: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """For each tool, the newest first; `problem` says why there are none, where that is known."""

    by_tool: Mapping[str, tuple[Control, ...]]
    problem: str | None = None


def controls(config_file: Path, config: Config, tools: tuple[str, ...]) -> Controls:
    """Return what is known to have happened, of these tools. A journal that cannot be read is a `problem`."""
    if not tools:
        return Controls(by_tool={})
    try:
        with doors.inspect(config_file) as client:
            return Controls(by_tool={tool: tuple(_asked(client, tool)) for tool in tools})
    except Unreachable as error:
        if not error.nobody:
            return Controls(by_tool={}, problem=error.format_message())
    except ClickException as error:
        return Controls(by_tool={}, problem=error.format_message())
    return _at_rest(config, tools)


# ------------------------------------------------------------ of a daemon that runs


def _asked(client: LocalClient, tool: str) -> Iterator[Control]:
    parameters: Parameters = {"state": State.SUCCEEDED.value, "tool": tool, "limit": LOOKED_MAX}
    found = 0
    for operation in client.read(Page[Operation], "/v1/operations", parameters).items:
        told = client.read(Story, f"/v1/operations/{segment(operation.operation_id)}")
        if told.compensation is not None:
            continue
        # null where they were erased; else a call's arguments are an object
        arguments = told.arguments if isinstance(told.arguments, dict) else None
        yield Control(operation_id=OperationId(told.operation_id), arguments=arguments, receipt=told.receipt)
        found += 1
        if found == TRIED_MAX:
            return


# ------------------------------------------------------------ of a file


def _at_rest(config: Config, tools: tuple[str, ...]) -> Controls:
    if not config.driver.state_dir.is_dir():
        return Controls(by_tool={})
    settings = doors.journal(config)
    try:
        with at_rest(settings, now=datetime.now(UTC)) as view:
            if view is None:
                return Controls(by_tool={})
            return Controls(by_tool={tool: tuple(_read(view, tool)) for tool in tools})
    except StoreError as error:
        return Controls(by_tool={}, problem=str(error))


def _read(view: View, tool: str) -> Iterator[Control]:
    found = 0
    page = view.operations(OperationFilter(state=State.SUCCEEDED, tool=tool), None, LOOKED_MAX)
    for record in page.items:
        if view.command(compensation_id(record.operation_id)) is not None:
            continue
        data = view.command_data(record.command_id)
        arguments = None if data is None else data.arguments
        yield Control(operation_id=record.operation_id, arguments=arguments, receipt=record.receipt)
        found += 1
        if found == TRIED_MAX:
            return
