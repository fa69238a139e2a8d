"""What can go wrong at the local sockets, and how it is said.

Part of `driver.local`; imports a socket's limit from `driver.config`.

    LocalError
    ├── SocketError            the sockets cannot be made: the daemon does not start
    │   ├── SocketInUse        somebody answers on that path
    │   ├── NotASocket         the path holds something that is not ours to delete
    │   ├── SocketPathTooLong  the kernel cannot bind it
    │   ├── RuntimeDirUnsafe   others could replace the sockets in that folder
    │   └── SocketUnavailable  the operating system refused
    └── Problem                a request is refused: the answer is an RFC 9457 problem with a stable `code`
"""

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Final

from driver.config.sockets import SOCKET_PATH_BYTES_MAX


class LocalError(Exception):
    """The root of the tree."""


class SocketError(LocalError):
    """A socket of the local API cannot be made."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        super().__init__(text)


class SocketInUse(SocketError):
    """Somebody answers on the path: a live socket is never taken over."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path,
            f"{path} is in use: another process answers there. "
            "Stop it, or give this daemon a driver.runtime_dir of its own",
        )


class NotASocket(SocketError):
    """The path holds a file, a folder or a link: it is not ours, so it is never deleted."""

    def __init__(self, path: Path, what: str) -> None:
        self.what = what
        super().__init__(
            path,
            f"{path} is {what}, not a socket, and is left alone. "
            "Move it away, or choose another driver.runtime_dir",
        )


class SocketPathTooLong(SocketError):
    """The path does not fit into the kernel's address."""

    def __init__(self, path: Path, size: int) -> None:
        self.size = size
        super().__init__(
            path,
            f"{path} is {size} bytes long, and a Unix socket's path may have {SOCKET_PATH_BYTES_MAX}: "
            "choose a shorter driver.runtime_dir",
        )


class RuntimeDirUnsafe(SocketError):
    """Others than the owner could put their own socket in the place of ours."""

    def __init__(self, path: Path, fault: str, remedy: str) -> None:
        super().__init__(
            path,
            f"driver.runtime_dir {path} {fault}: somebody else could replace the sockets in it. {remedy}",
        )


class SocketUnavailable(SocketError):
    """The operating system refused; the cause is chained."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(
            path,
            f"cannot use {path}: {cause.strerror or cause}. "
            "Check driver.runtime_dir, its owner and the permissions of the folders above it",
        )


class Code(StrEnum):
    """Every `code` of a problem: stable words that programs may compare."""

    INVALID_REQUEST = "invalid_request"
    BROWSER_REQUEST = "browser_request"
    READ_ONLY_SOCKET = "read_only_socket"
    NO_SUCH_PATH = "no_such_path"
    OPERATION_NOT_FOUND = "operation_not_found"
    COMMAND_NOT_FOUND = "command_not_found"
    RUN_NOT_FOUND = "run_not_found"
    DEAD_LETTER_NOT_FOUND = "dead_letter_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    BODY_TOO_LARGE = "body_too_large"
    TOO_MANY_REQUESTS = "too_many_requests"
    INVALID_QUERY = "invalid_query"
    INVALID_BODY = "invalid_body"
    FENCED = "fenced"
    NOT_FENCED = "not_fenced"
    ROLLBACK_NOT_ACCEPTED = "rollback_not_accepted"
    HISTORY_NOT_CONFIRMED = "history_not_confirmed"
    UNKNOWN_OPERATION = "unknown_operation"
    NOT_AWAITING_APPROVAL = "not_awaiting_approval"
    STALE_APPROVAL = "stale_approval"
    ALREADY_DECIDED = "already_decided"
    APPROVAL_EXPIRED = "approval_expired"
    SELF_APPROVAL = "self_approval"
    STILL_RUNNING = "still_running"
    ALREADY_SETTLED = "already_settled"
    OUTRANKED = "outranked"
    NO_PROBE_DECLARED = "no_probe_declared"
    NOT_ENDED = "not_ended"
    ALREADY_OCCURRED = "already_occurred"
    COMPENSATED = "compensated"
    PARENT_JUDGED = "parent_judged"
    LOOKALIKE_UNSETTLED = "lookalike_unsettled"
    DUPLICATE_COMPLETED = "duplicate_completed"
    DUPLICATE_FAILED = "duplicate_failed"
    DUPLICATE_UNKNOWN = "duplicate_unknown"
    ARGUMENTS_ERASED = "arguments_erased"
    EXPIRED = "expired"
    MAY_STILL_LAND = "may_still_land"
    NOT_PROVEN_NONE = "not_proven_none"
    BEST_EFFORT_ONLY = "best_effort_only"
    NOT_DEDUPLICATED = "not_deduplicated"
    ANOTHER_KEY = "another_key"
    CLOCK_WENT_BACK = "clock_went_back"
    PAST_HORIZON = "past_horizon"
    NO_COMPENSATION_DECLARED = "no_compensation_declared"
    EXPRESSION_FAILED = "expression_failed"
    OVERLOADED = "overloaded"
    DRAINING = "draining"
    NO_ROOM = "no_room"
    CONTENT_ERASED = "content_erased"
    HISTORY_CHANGED = "history_changed"
    FILE_EXISTS = "file_exists"
    FILE_UNWRITABLE = "file_unwritable"
    BUSY = "busy"
    JOURNAL_STOPPED = "journal_stopped"
    NOT_READY = "not_ready"
    UNHEALTHY = "unhealthy"
    INTERNAL = "internal"


STATUSES: Final[Mapping[Code, HTTPStatus]] = {
    Code.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    Code.BROWSER_REQUEST: HTTPStatus.FORBIDDEN,
    Code.READ_ONLY_SOCKET: HTTPStatus.FORBIDDEN,
    Code.NO_SUCH_PATH: HTTPStatus.NOT_FOUND,
    Code.OPERATION_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.COMMAND_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.RUN_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.DEAD_LETTER_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    Code.REQUEST_TIMEOUT: HTTPStatus.REQUEST_TIMEOUT,
    Code.BODY_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Code.INVALID_QUERY: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.INVALID_BODY: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.TOO_MANY_REQUESTS: HTTPStatus.TOO_MANY_REQUESTS,
    Code.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.JOURNAL_STOPPED: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.NOT_READY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.UNHEALTHY: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""The status of each code that is not a 409: the request is right, and the journal says no."""


def status_of(code: Code) -> HTTPStatus:
    """Return the status that a code always comes with."""
    return STATUSES.get(code, HTTPStatus.CONFLICT)


class Problem(LocalError):
    """A refused request. `errors` names the parts of it that are wrong, each with what is allowed."""

    def __init__(
        self,
        code: Code,
        detail: str,
        *,
        errors: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status_of(code)
        self.code = code
        self.detail = detail
        self.errors = dict(errors or {})
        self.headers = dict(headers or {})
        super().__init__(detail)


def not_found(code: Code, what: str, wanted: str) -> Problem:
    """Return the 404 for one `what` (a noun) that this journal does not hold."""
    return Problem(
        code,
        f"this journal has no {what} {wanted!r}: check the id; what retention has pruned is not shown either",
    )
