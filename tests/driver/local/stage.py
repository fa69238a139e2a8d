"""An engine whose local API is served, and the command line beside it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread
from click.testing import Result

from driver.core.contracts import Contract
from driver.local.server import serve_local
from driver.local.settings import LocalSettings
from tests.driver.cli.desk import run, write_config
from tests.driver.engine.rig import Rig, ScriptedProvider, engine
from tests.driver.engine.test_probing import PROBED, READ
from tests.driver.local.world import World


async def serve(world: World, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Serve until cancelled."""
    await serve_local(world, LocalSettings(runtime_dir=world.runtime_dir), task_status=task_status)


@asynccontextmanager
async def serving(
    folder: Path, provider: ScriptedProvider, contract: Contract = PROBED
) -> AsyncGenerator[tuple[Rig, World]]:
    """An engine whose local API is served."""
    async with (
        engine(folder, provider, contract=contract, others=READ) as rig,
        anyio.create_task_group() as tasks,
    ):
        served = World(
            journal=rig.journal, runtime_dir=folder / "run", desk=rig.local, remedies=rig.engine.remedies
        )
        served.runtime_dir.chmod(0o750)
        await tasks.start(serve, served)
        yield rig, served
        tasks.cancel_scope.cancel()


async def effectd(folder: Path, *arguments: str) -> Result:
    """Run a command in a thread, as click's own runner does."""
    return await to_thread.run_sync(run, write_config(folder), *arguments)
