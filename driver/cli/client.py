"""The command line's side of the local API: HTTP over the daemon's Unix sockets.

Part of `driver.cli`; imports httpx2, click, pydantic, the replies and the API's codes. What goes wrong
comes out as a click exception with the exit code that docs/cli.md promises, and with what to do next:

    click.ClickException
     ├── Unreachable   3   no daemon answers on the socket
     ├── Refused       1   the daemon refused
     │   ├── BadRequest 2   the request itself was wrong
     │   └── Stopping   1   its journal has stopped, and it is about to exit
     └── Unreadable    1   what answers does not speak this API
"""

import os
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self, TypeVar

import click
import httpx2
from pydantic import BaseModel, JsonValue, ValidationError

from driver.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE
from driver.cli.plain import plain
from driver.cli.replies import ProblemReply
from driver.config.sockets import OPERATOR_SOCKET
from driver.local.errors import Code

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
"""Longer than any read of a healthy daemon takes."""

_NOBODY: Final = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError)

_USAGE: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})

Parameters = Mapping[str, str | int | bool]
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """One socket of a daemon, and the configuration that it was found through."""

    socket: Path
    config: Path


class Unreachable(click.ClickException):
    """No daemon answers on the socket."""

    exit_code = EXIT_UNREACHABLE

    def __init__(self, door: Door, cause: Exception) -> None:
        self.door = door
        self.nobody = isinstance(cause, _NOBODY)
        """Whether nothing at all listens there."""
        super().__init__(f"{door.socket}: {_why(cause, door)}")


class Refused(click.ClickException):
    """The daemon answered with a problem."""

    exit_code = EXIT_REFUSED

    def __init__(self, problem: ProblemReply) -> None:
        self.problem = problem
        super().__init__(
            plain(f"{problem.detail} ({problem.code})"),
        )


class BadRequest(Refused):
    """The daemon did not understand the request."""

    exit_code = EXIT_USAGE


class Stopping(Refused):
    """The daemon's journal has stopped, and it is about to exit."""


class Unreadable(click.ClickException):
    """The answer is none of this API's."""

    exit_code = EXIT_REFUSED

    def __init__(self, door: Door, what: str) -> None:
        self.door = door
        super().__init__(
            f"{door.socket} answered {what}: is this command as new as the daemon? "
            "compare 'effectd --version' with the daemon's log"
        )


class LocalClient:
    """A context manager around one socket. Every method blocks, and raises what the module names."""

    def __init__(self, door: Door, *, answer_s: float = ANSWER_S) -> None:
        self._door = door
        self._http = httpx2.Client(
            transport=httpx2.HTTPTransport(uds=os.fspath(door.socket)),
            base_url="http://effectd",
            timeout=httpx2.Timeout(answer_s, connect=CONNECT_S),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, parameters: Parameters | None = None) -> bytes:
        """Return the body of a read, as it came."""
        self.knock()
        with self._mapped():
            response = self._http.get(path, params=_texts(parameters or {}))
            self._refuse_unless_good(response)
            return response.content

    def read(self, model: type[R], path: str, parameters: Parameters | None = None) -> R:
        """Return a read's answer as `model`."""
        return self.parse(model, self.get(path, parameters))

    def post(self, path: str, body: Mapping[str, JsonValue]) -> bytes:
        """Return the body of a write's answer, as it came. Members of `body` that are None are left out."""
        self.knock()
        with self._mapped():
            given = {name: value for name, value in body.items() if value is not None}
            response = self._http.post(path, json=given)
            self._refuse_unless_good(response)
            return response.content

    def parse(self, model: type[R], text: bytes | str) -> R:
        """Return JSON text of the daemon as `model`."""
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            raise Unreadable(self._door, f"something that is no {model.__name__.lower()}") from error

    def lines(
        self,
        method: str,
        path: str,
        parameters: Parameters | None = None,
        *,
        body: Mapping[str, JsonValue] | None = None,
        patient: bool = False,
    ) -> Iterator[str]:
        """Yield each line of a stream. `patient`: the next line may take for ever."""
        with self._stream(method, path, parameters, body, patient=patient) as response:
            yield from response.iter_lines()

    def pieces(self, path: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        """Yield a long read's body as it comes."""
        with self._stream("GET", path, parameters, None, patient=False) as response:
            yield from response.iter_bytes()

    @contextmanager
    def _stream(
        self,
        method: str,
        path: str,
        parameters: Parameters | None,
        body: Mapping[str, JsonValue] | None,
        *,
        patient: bool,
    ) -> Generator[httpx2.Response]:
        self.knock()
        timeout = httpx2.Timeout(None if patient else ANSWER_S, connect=CONNECT_S)
        asked = self._http.stream(method, path, params=_texts(parameters or {}), json=body, timeout=timeout)
        with self._mapped(), asked as response:
            if response.is_error:
                response.read()
            self._refuse_unless_good(response)
            yield response

    def knock(self) -> None:
        """Connect, and hang up; by hand, for httpx2 leaves its socket open where it is refused."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_S)
            try:
                probe.connect(os.fspath(self._door.socket))
            except OSError as error:
                raise Unreachable(self._door, error) from error

    def _refuse_unless_good(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        try:
            problem = ProblemReply.model_validate_json(response.content)
        except ValidationError as error:
            raise Unreadable(self._door, f"HTTP {response.status_code} without a problem") from error
        raise _refusal(problem)

    @contextmanager
    def _mapped(self) -> Generator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            raise Unreachable(self._door, error) from error


def _refusal(problem: ProblemReply) -> Refused:
    if problem.status in _USAGE:
        return BadRequest(problem)
    return Stopping(problem) if problem.code == Code.JOURNAL_STOPPED else Refused(problem)


def _texts(parameters: Parameters) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in parameters.items()
    }


def _why(cause: Exception, door: Door) -> str:
    """Return what a failed connection means, and what to do."""
    if isinstance(cause, PermissionError):
        others = "" if door.socket.name == OPERATOR_SOCKET else ", or as a member of the socket's group"
        return f"you may not open it: run this as the daemon's user{others}"
    if isinstance(cause, _NOBODY):
        return (
            "no daemon listens there. Is it running? See 'systemctl status effectd', "
            f"or start it with 'effectd run --config {door.config}'"
        )
    if isinstance(cause, (TimeoutError, httpx2.TimeoutException)):
        return "the daemon does not answer in time. Look at its log; is its disk stalled?"
    return "the daemon went away in mid-answer. Is it restarting? Try again, and look at its log"
