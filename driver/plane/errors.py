"""What can go wrong at the reference plane, and how it is said.

Part of `driver.plane`; imports the standard library only.

    PlaneError
    ├── LedgerUnavailable   the plane's file cannot be used: it does not start
    ├── LedgerBroken        the plane's file failed while it was in use: it stops
    ├── TokenUnavailable    a token file cannot be read, or holds nothing
    ├── AddressUnavailable  the address cannot be listened on
    └── Problem             a request is refused: the answer is an RFC 9457 problem with a stable `code`
        └── InvalidSubmission   what was sent is no command that a daemon would take
"""

from http import HTTPStatus
from pathlib import Path


class PlaneError(Exception):
    """The root of the tree."""


class LedgerUnavailable(PlaneError):
    """The file cannot be opened, is somebody else's, or is in use."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"{path}: {why}")


class LedgerBroken(PlaneError):
    """The file could not be read or written: only a restart can tell what it holds."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {why}; nothing more was acknowledged. See to the disk, and start the plane again"
        )


class TokenUnavailable(PlaneError):
    """There is no token to compare with, so nobody is let in."""

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        super().__init__(f"{path}: {why}; put one token into it, on a line of its own")


class AddressUnavailable(PlaneError):
    """The operating system does not let us listen there."""

    def __init__(self, address: str, why: str) -> None:
        self.address = address
        super().__init__(f"cannot listen on {address}: {why}; choose another with --listen HOST:PORT")


class Problem(PlaneError):
    """A request over the HTTP API that is refused. Nothing was changed."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        super().__init__(detail)


class InvalidSubmission(Problem):
    """No daemon would take this command."""

    def __init__(self, detail: str) -> None:
        super().__init__(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_command", detail)
