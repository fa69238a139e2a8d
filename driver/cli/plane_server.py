"""The reference control plane as a process: its state folder, its tokens, and its life until a signal.

Part of `driver.cli`; imports `driver.plane`, but only where the plane itself is started.

    click.ClickException
     └── PlaneMisconfigured  2   the plane cannot start as it was told
          └── PlaneStopped  70   its file failed while it ran
"""

import os
import secrets
from pathlib import Path

import anyio
import click

from driver.cli.failures import EXIT_BUG, EXIT_USAGE


class PlaneMisconfigured(click.ClickException):
    """The plane cannot start as it was told; `cause` says why, and what to do."""

    exit_code = EXIT_USAGE

    def __init__(self, cause: Exception) -> None:
        self.cause = cause
        super().__init__(str(cause))


class PlaneStopped(PlaneMisconfigured):
    """The plane's file failed while it ran: it acknowledges nothing more."""

    exit_code = EXIT_BUG


class TokenUnmade(Exception):
    """A token file cannot be made."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror}; make its folder, or choose another file with --db")


def state_folder() -> Path:
    """Return where the plane keeps what no option places elsewhere."""
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "effectd-plane"


def serve(listen: tuple[str, int], db: Path, token_file: Path, operator_token_file: Path) -> None:
    """Serve the plane at this host and port until a signal ends it. Raises `PlaneMisconfigured`."""
    from driver import log  # noqa: PLC0415 - the reads need no server
    from driver.plane.errors import LedgerBroken, PlaneError  # noqa: PLC0415
    from driver.plane.server import PlaneSettings, serve_plane  # noqa: PLC0415

    def ready(url: str) -> None:
        click.echo(f"listening on {url}")
        click.echo(
            f"drivers: {url.replace('http', 'ws', 1)}/driver, token in {token_file}\n"
            f"operators: {url}/v1, token in {operator_token_file}",
            err=True,
        )

    settings = PlaneSettings(
        host=listen[0], port=listen[1], db=db, token_file=token_file, operator_token_file=operator_token_file
    )
    log.configure("info", "auto")
    try:
        anyio.run(serve_plane, settings, ready)
    except LedgerBroken as error:
        raise PlaneStopped(error) from error
    except PlaneError as error:
        raise PlaneMisconfigured(error) from error


def made_folder() -> Path:
    """Return the plane's state folder, made when it is missing."""
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def minted(path: Path) -> Path:
    """Return a token file at its default place: made, readable by its owner only, when it is missing.

    Raises `PlaneMisconfigured` where it cannot be made.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return path
    except OSError as error:
        raise PlaneMisconfigured(TokenUnmade(path, error)) from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    return path
