"""A process life to be killed: dispatches one call, and says each phase that it reaches; or looks once.

Run as `python -m tests.driver.providers.command.life`; its stdin is one JSON object.
"""

import json
import sys
from pathlib import Path

import anyio

from driver.core.attempts import Phase, ToolCall
from driver.providers.command.provider import CommandProvider
from store.records import OperationId
from tests.driver.providers.command.stage import EVIDENT, settings


def _say(phase: Phase) -> None:
    sys.stdout.write(f"{phase.value}\n")
    sys.stdout.flush()


async def main() -> None:
    """Dispatch the call, or look."""
    asked = json.loads(sys.stdin.readline())
    provider = CommandProvider(settings(Path(asked["folder"]), {"look": EVIDENT}))
    call = ToolCall(
        operation_id=OperationId(asked["operation_id"]),
        attempt=1,
        tool="look" if asked["look"] else "run",
        arguments=asked["arguments"],
        key=None,
        timeout_s=asked["timeout_s"],
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(provider.run)
        if not asked["group"]:
            provider._group = None
        if asked["look"]:
            await provider.observe(call)
        else:
            await provider.dispatch(call, _say)
        await provider.close()


if __name__ == "__main__":
    anyio.run(main)
