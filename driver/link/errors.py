"""Why a connection to the plane did not come about, or ended, in words for the log and for `status`.

    LinkError
     ├── TokenUnusable      the token file cannot be read, or does not hold one token
     ├── TlsUnusable        a certificate or key file cannot be used
     ├── PlaneUnreachable   no connection, no TLS, no answer in time, or one that is no WebSocket
     └── PlaneRefused       the plane answered the handshake with an HTTP status

None of them ends the process: `Link` waits, and tries again. No message holds the token.
"""

from http import HTTPStatus
from pathlib import Path
from typing import Final

from websockets.exceptions import ConnectionClosed

from driver.core.frames import (
    CLOSE_GOING_AWAY,
    CLOSE_NOT_AUTHORISED,
    CLOSE_PROTOCOL_ERROR,
    CLOSE_RESTARTING,
    CLOSE_SUPERSEDED,
)

_NOT_AUTHORISED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_ADVICE: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the plane does not know the token: put the right one into the token file",
    HTTPStatus.FORBIDDEN: "the plane does not admit the token: is it the right one, and allowed in?",
    HTTPStatus.TOO_MANY_REQUESTS: "the plane asks for fewer connections",
    HTTPStatus.NOT_FOUND: "nothing is served under that path: check control.url",
}
_MEANINGS: Final[dict[int, str]] = {
    CLOSE_GOING_AWAY: "it goes away",
    CLOSE_RESTARTING: "it restarts",
    CLOSE_SUPERSEDED: "another life of this driver has taken over",
    CLOSE_PROTOCOL_ERROR: "it takes what it got for an error of the protocol; its log says what",
    CLOSE_NOT_AUTHORISED: "it does not admit the token any more: put the right one into the token file",
}
"""What the protocol says of the codes with which a plane closes."""


class LinkError(Exception):
    """A connection did not come about."""

    hopeless = False
    """Whether trying again soon cannot help."""
    unauthorised = False
    """Whether another token could help."""


class TokenUnusable(LinkError):
    """There is no token to show."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"control.token_file {path} {reason}: write the plane's token into it, on one line")


class TlsUnusable(LinkError):
    """A file that TLS needs cannot be used."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"TLS cannot be set up ({reason}): check control.ca_file, client_cert_file and client_key_file"
        )


class PlaneUnreachable(LinkError):
    """Nobody answers, or nobody who speaks the protocol."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url} cannot be reached: {reason}")


class PlaneRefused(LinkError):
    """The handshake was answered with an HTTP status other than 101."""

    def __init__(self, url: str, status: int) -> None:
        self.url = url
        self.status = status
        self.unauthorised = status in _NOT_AUTHORISED
        self.hopeless = self.unauthorised or status == HTTPStatus.TOO_MANY_REQUESTS
        super().__init__(f"{url} answered HTTP {status}: {self._advice()}")

    def _advice(self) -> str:
        if HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.BAD_REQUEST:
            return "redirects are not followed, for they would carry the token: correct control.url"
        return _ADVICE.get(self.status, "look into the plane's log")


def how_it_closed(closed: ConnectionClosed) -> str:
    """Say in one line who closed a connection that was open, with which code, and why."""
    if closed.rcvd is not None and closed.rcvd_then_sent is not False:
        meaning = _MEANINGS.get(closed.rcvd.code)
        told = f"the plane closed the connection with {closed.rcvd.code}"
        return _one_line(told if meaning is None else f"{told}, {meaning}", closed.rcvd.reason)
    if closed.sent is not None:
        return _one_line(f"the connection was closed from here with {closed.sent.code}", closed.sent.reason)
    return "the connection broke: nobody closed it"


def _one_line(what: str, reason: str) -> str:
    said = " ".join(reason.split())
    return f"{what}: {said}" if said else what
