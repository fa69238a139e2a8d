"""A state folder that is put back as it was: what a restored disk does to a daemon."""

import shutil

from tests.system.plane import ScriptedPlane, call
from tests.system.sandbox import Sandbox


def snapshot(made: Sandbox) -> None:
    """Copy the state folder, as a snapshot of the disk does."""
    shutil.copytree(made.state, made.root / "snapshot")


def restore(made: Sandbox) -> None:
    """Put the snapshot back, as a restored disk does."""
    shutil.rmtree(made.state)
    shutil.copytree(made.root / "snapshot", made.state)


async def calls(made: Sandbox, plane: ScriptedPlane, *numbers: int) -> None:
    """Let one life make some calls, and stop."""
    life = made.start()
    await plane.give(*(call(f"cmd-{number}", n=number) for number in numbers))
    await plane.answered()
    assert await life.stop() == 0
