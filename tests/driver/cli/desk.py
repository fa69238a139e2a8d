"""The command line beside the sockets of a daemon."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from click.testing import CliRunner, Result

from driver.cli.main import main
from tests.driver.local.world import World, served

EFFECTD = (sys.executable, "-c", "from driver.cli.main import main; main()")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A daemon's sockets, and the configuration that leads to them."""

    world: World
    config: Path

    async def effectd(self, *arguments: str) -> Result:
        """Run a command in a thread, as click's own runner does."""
        return await to_thread.run_sync(run, self.config, *arguments)


def run(config: Path, *arguments: str) -> Result:
    """Run a command of the configuration `config`."""
    return CliRunner().invoke(main, [*arguments, "--config", str(config)])


def write_config(folder: Path) -> Path:
    """Return the configuration of the world in `folder`."""
    config = folder / "effectd.toml"
    config.write_text(f'[driver]\nstate_dir = "{folder}/state"\nruntime_dir = "{folder}/run"\n')
    return config


@asynccontextmanager
async def desk_in(folder: Path) -> AsyncGenerator[Desk]:
    """A served world with one operation of each kind."""
    async with served(folder) as world:
        yield Desk(world=world, config=write_config(folder))
