"""Where an act is played: the scratch folder, the repository, the programs, the voice.

Part of `driver.demo`.
"""

import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from driver.demo.errors import MissingProgram
from driver.demo.leftovers import gone
from driver.demo.narrator import Narrator
from driver.demo.repository import Repository, git_program, make_repository
from driver.demo.service import Service, service

COMMIT_TOOL: Final = "git_commit"
"""The tool of mcp-server-git that every act calls."""
SOCKET_FOLDER_MAX: Final = 60
"""A Unix socket's path has at most 107 bytes; ours begin with the scratch folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What an act may use. Made by `stage`."""

    folder: Path
    repository: Repository
    git_server: tuple[str, ...]
    """The command line of mcp-server-git, for the repository."""
    service: Service
    """effectd, installed as it is, and a plane for it."""
    narrator: Narrator


def installed(program: str, install: str) -> str:
    """Return the path of `program`: beside this interpreter, or on the PATH. Raises `MissingProgram`."""
    found = shutil.which(program, path=sysconfig.get_path("scripts")) or shutil.which(program)
    if found is None:
        raise MissingProgram(program, install)
    return found


@asynccontextmanager
async def stage(narrator: Narrator) -> AsyncGenerator[Stage]:
    """Make a stage, and leave nothing of it behind: no process, no file. Raises `MissingProgram` first."""
    found = await to_thread.run_sync(_prepare)
    try:
        repository = await make_repository(found.folder / "repository")
        git_server = (found.server, "--repository", str(repository.folder))
        async with service(found.folder / "effectd", found.effectd, git_server) as running:
            yield Stage(
                folder=found.folder,
                repository=repository,
                git_server=git_server,
                service=running,
                narrator=narrator,
            )
    finally:
        with anyio.CancelScope(shield=True):
            await gone(found.folder)
            await to_thread.run_sync(partial(shutil.rmtree, found.folder, ignore_errors=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a stage is made of."""

    folder: Path
    server: str
    effectd: str


def _prepare() -> _Found:
    """Look for the programs, and make the scratch folder once all are there. Blocks."""
    git_program()
    server = installed("mcp-server-git", f"type {shlex.quote(sys.executable)} -m pip install mcp-server-git")
    effectd = installed("effectd", "install effectd itself, as 'make demo' does")
    folder = Path(tempfile.mkdtemp(prefix="effectd-demo-", dir=_place()))
    return _Found(folder=folder, server=server, effectd=effectd)


def _place() -> str | None:
    """Return where the scratch folder goes: where temporary files belong, unless that path is too long."""
    return None if len(tempfile.gettempdir()) <= SOCKET_FOLDER_MAX else "/tmp"  # noqa: S108 - mkdtemp makes it safe
