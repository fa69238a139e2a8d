"""What stands in an attempt's folder, written by the daemon and its shim, read by this life or a later one.

Part of `driver.providers.command`; imports nothing of ours. The format is the shim's (`shim.FORMAT`).
"""

from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

RECORD_BYTES_MAX: Final = 4_096
"""No record comes near to it."""


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    format: Literal[1]


class Origin(_Record):
    """Written by the daemon before the shim exists: which boot, whose process numbers, which cgroup."""

    boot_id: str
    namespace: str
    cgroup: str | None


class Started(_Record):
    """Written by the shim before the program is executed. `deadline` is in seconds of `time.monotonic`."""

    pid: int
    pid_started: int
    child: int
    child_started: int
    deadline: float
    stdout_pipe: int
    stderr_pipe: int


class Ended(_Record):
    """Written by the shim, durably, when nothing of the program is left."""

    operation_id: str
    attempt: int
    never_executed: str | None
    cause: Literal["deadline", "cancelled"] | None
    exit_code: int | None
    signal: int | None
    ok: bool
    duration_ms: int
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    processes_ended: int
    processes_left: int


R = TypeVar("R", bound=_Record)


def parse(kind: type[R], data: bytes) -> R | None:
    """Return the record that `data` is; None where it is none."""
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        return None
