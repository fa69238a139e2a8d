"""The scratch git repository: where the demo's effects happen, and the only witness that counts.

Part of `driver.demo`; imports its errors. Every call of git here is one that a person could type, and none
depends on that person's own configuration.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from driver.demo.errors import GitFailed, MissingProgram

GIT_ENV: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Keeps hooks, signing keys and templates of the person at the keyboard out of the scratch repository."""
_GIT_TIMEOUT_S: Final = 20.0
_SETTINGS: Final = {
    "user.name": "an agent",
    "user.email": "agent@demo.invalid",
    "commit.gpgsign": "false",
    "gc.auto": "0",  # no process of git's own that outlives the demo
}


def git_program() -> str:
    """Return git's path. Raises `MissingProgram`."""
    found = shutil.which("git")
    if found is None:
        raise MissingProgram("git", "apt-get install git, or your system's way")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One line of the history."""

    short: str
    subject: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository in the demo's scratch folder. Made by `make_repository`."""

    folder: Path

    async def stage(self, name: str, text: str) -> None:
        """Write a file and stage it: the agent's work that the next commit takes up."""
        await anyio.Path(self.folder / name).write_text(text)
        await self._git("add", "--", name)

    async def commit(self, subject: str) -> None:
        """Commit what is staged."""
        await self._git("commit", "--quiet", "--message", subject)

    async def commits(self) -> tuple[Commit, ...]:
        """Return the history, newest first."""
        text = await self._git("log", "--format=%h%x00%s")
        lines = (line.partition("\0") for line in text.splitlines())
        return tuple(Commit(short=short, subject=subject) for short, _, subject in lines)

    async def count(self, subject: str) -> int:
        """Return how many commits have exactly this subject."""
        return sum(commit.subject == subject for commit in await self.commits())

    async def staged(self) -> tuple[str, ...]:
        """Return the names of the staged files that no commit has taken up."""
        return tuple((await self._git("diff", "--cached", "--name-only")).splitlines())

    async def branches(self, name: str) -> int:
        """Return how many branches have exactly this name."""
        return len((await self._git("branch", "--list", name)).splitlines())

    async def _git(self, *words: str) -> str:
        return await to_thread.run_sync(_run_git, self.folder, words)


async def make_repository(folder: Path) -> Repository:
    """Make `folder` a repository with one commit. Raises `MissingProgram`."""
    await anyio.Path(folder).mkdir()
    await to_thread.run_sync(_run_git, folder, ("init", "--quiet", "--template=", "--initial-branch=main"))
    for name, value in _SETTINGS.items():
        await to_thread.run_sync(_run_git, folder, ("config", name, value))
    made = Repository(folder)
    await made.stage("README", "A scratch repository: the demo's only witness.\n")
    await made.commit("Begin")
    return made


def _run_git(folder: Path, words: Sequence[str]) -> str:
    """Run git to its end, and return what it printed. Raises `GitFailed`."""
    done = subprocess.run(
        [git_program(), "-C", str(folder), *words],
        env={**os.environ, **GIT_ENV},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_GIT_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise GitFailed(words, done.returncode, done.stderr)
    return done.stdout
