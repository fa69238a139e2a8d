"""The daemon with a provider that does nothing, in its own process: what effectd itself costs.

Run as `python -m tests.bench.subjects.noop CONFIG`. Everything else is the daemon as it is.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
from anyio.abc import TaskStatus

from driver.config.load import load
from driver.config.models import Config
from driver.core.attempts import Answered, NotSent, Phase, Report, ToolCall
from driver.daemon import main
from driver.providers.protocol import LateResults, Provider


class NoopProvider:
    """Answers at once."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()

    def ready(self, call: ToolCall) -> bool:
        return True

    async def prepare(self, call: ToolCall) -> NotSent | None:
        return None

    async def dispatch(self, call: ToolCall, progress: Callable[[Phase], None]) -> Report:
        progress(Phase.WRITING)
        progress(Phase.ANSWERED)
        return Answered(result={"content": [{"type": "text", "text": "done"}]}, is_error=False)

    async def close(self) -> None:
        pass


def _noop(config: Config, _late: LateResults) -> Mapping[str, Provider]:
    return {name: NoopProvider(name) for name in config.providers}


if __name__ == "__main__":
    vars(sys.modules["driver.assembly"])["providers"] = _noop
    sys.exit(main(load(Path(sys.argv[1]))))
