"""The daemon with a provider that does nothing, in its own process: what effectd itself costs.

Run as `python -m tests.bench.subjects.noop CONFIG`. Everything else is the daemon as it is. Where
`EFFECTD_BENCH_HEARTBEAT` names a file, the provider also watches the event loop, and leaves there when it
stood still, and for how long.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus

from driver.config.load import load
from driver.config.models import Config
from driver.core.attempts import Answered, NotSent, Phase, Report, ToolCall
from driver.daemon import main
from driver.providers.protocol import Provider

HEARTBEAT: Final = "EFFECTD_BENCH_HEARTBEAT"
BEAT_S: Final = 0.005


class NoopProvider:
    """Answers at once."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        if HEARTBEAT in os.environ:
            await _watch(Path(os.environ[HEARTBEAT]))
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


async def _watch(file: Path) -> None:
    """Note when the loop was late by more than a beat, until cancelled: the time, and by how many seconds.

    The time in which a thread of ours could have run, and other programs had the processors, does not count.
    """
    gaps: list[tuple[float, float]] = []
    try:
        before, queued = time.perf_counter(), _queued_s()
        while True:
            await anyio.sleep(BEAT_S)  # what is watched is this
            now, queued_now = time.perf_counter(), _queued_s()
            late = now - before - BEAT_S - (queued_now - queued)
            if late > BEAT_S:
                gaps.append((time.time(), late))
            before, queued = now, queued_now
    finally:
        file.write_text(json.dumps(gaps))  # noqa: ASYNC240 - at the end of the daemon's life


def _queued_s() -> float:
    """Return how long all threads have waited for a processor: one may have held the interpreter's lock."""
    stats = (path.read_text() for path in Path("/proc/self/task").glob("*/schedstat"))
    return sum(int(text.split()[1]) for text in stats) / 1e9


def _noop(config: Config, *_: object) -> Mapping[str, Provider]:
    return {name: NoopProvider(name) for name in config.providers}


if __name__ == "__main__":
    vars(sys.modules["driver.assembly"])["providers"] = _noop
    sys.exit(main(load(Path(sys.argv[1]))))
