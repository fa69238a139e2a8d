"""The command line's side of the reference plane's HTTP API, and what can go wrong there.

Part of `driver.cli`; imports click, httpx2 and `driver.core.tokens`.

    click.ClickException
     ├── PlaneUnreachable  3   no plane answers at the URL
     ├── PlaneRefused      1   it refused
     │    └── PlaneMisused 2   the request itself was wrong
     └── NoToken           2   the operators' token cannot be read, or is none
"""

from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import click
import httpx2

from driver.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE
from driver.cli.plain import plain
from driver.core.tokens import fault_of

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
SOON_S: Final = 5
WAIT_S: Final = 30
"""How long one request waits for a receipt, before it is asked again."""

_USAGE: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})

Reply = dict[str, Any]


class PlaneUnreachable(click.ClickException):
    """Nobody answers."""

    exit_code = EXIT_UNREACHABLE

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(
            f"no plane answers at {url} ({cause}): start 'effectd plane', or give its address with --url"
        )


class PlaneRefused(click.ClickException):
    """The plane answered with a problem, or with something else than an answer."""

    exit_code = EXIT_REFUSED

    def __init__(self, code: str, detail: str) -> None:
        hint = "; see --operator-token-file" if code.startswith("token_") else ""
        super().__init__(f"{detail} ({code}){hint}")


class PlaneMisused(PlaneRefused):
    """The request itself was wrong."""

    exit_code = EXIT_USAGE


class NoToken(click.ClickException):
    """There is no token to show."""

    exit_code = EXIT_USAGE

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"{path}: {why}; the operators' token stands in the file that 'effectd plane' names "
            "when it starts: give that one with --operator-token-file"
        )


class PlaneClient:
    """A context manager around one plane. Every method blocks, and raises what the module names."""

    def __init__(self, url: str, token_file: Path) -> None:
        token = _read_token(token_file)
        self._url = url
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(WAIT_S + ANSWER_S, connect=CONNECT_S),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, parameters: Mapping[str, str | int | None] | None = None) -> Reply:
        """Return a read's answer; parameters that are None are left out."""
        given = {name: value for name, value in (parameters or {}).items() if value is not None}
        return self._answer("GET", path, params=given)

    def submit(self, command: Reply) -> Reply:
        """Give a command to the plane; return all that is known of it."""
        return self._answer("POST", "/v1/commands", json=command)

    def receipt_of(self, command_id: str) -> Reply:
        """Wait, as long as it takes, until the command has its receipt; return all that is known of it.

        Whoever waits for long is told once, on standard error, where to look.
        """
        path = f"/v1/commands/{command_id}"
        view = self.get(path, {"wait": SOON_S})
        if view["receipt_kind"] is None:
            text = f"{command_id} is {view['state']}, and waits for its receipt, perhaps for an approval"
            click.echo(plain(f"{text}: see 'effectd show {command_id}' where its daemon runs"), err=True)
        while view["receipt_kind"] is None:
            view = self.get(path, {"wait": WAIT_S})
        return view

    def _answer(self, method: str, path: str, **request: Any) -> Reply:  # noqa: ANN401 - as httpx2 takes them
        try:
            response = self._http.request(method, path, **request)
        except httpx2.TransportError as error:
            raise PlaneUnreachable(self._url, error) from error
        body: Reply = {}
        with suppress(ValueError):
            body = response.json()
        if not response.is_success or not body:
            refusal = PlaneMisused if response.status_code in _USAGE else PlaneRefused
            code = body.get("code", f"HTTP {response.status_code}")
            raise refusal(code, body.get("detail", f"{self._url} is no plane of effectd"))
        return body


def _read_token(path: Path) -> str:
    """Return the token in the file at `path`, without the whitespace around it. Raises `NoToken`."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise NoToken(path, error.strerror or str(error)) from error
    if (fault := fault_of(text)) is not None:
        raise NoToken(path, fault)
    return text
