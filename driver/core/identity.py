"""What names things: the syntax of ids, the ids that follow from others, and the digests that say "the same".

Part of `driver.core`, pure: imports `store.records` and `driver.core.canonical`. Definitions:
docs/protocol.md, section 4.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from driver.core.canonical import canonical
from store.records import (
    COMPENSATION_PREFIX,
    CommandId,
    Digest,
    JsonObject,
    JsonValue,
    OperationId,
    RunId,
)

ID_PATTERN: Final = "^[A-Za-z0-9._:-]{1,128}$"
"""A `command_id` or `run_id`, as a regular expression that JSON Schema and Python read alike."""
OPERATION_ID_PATTERN: Final = "^op_[0-9a-f]{32}$"
"""What `operation_id` returns, as a regular expression."""

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


def is_id(text: str) -> bool:
    """Whether `text` can be a `run_id`, or the `command_id` of any command."""
    return _ID.fullmatch(text) is not None


def is_plane_command_id(text: str) -> bool:
    """Whether `text` can be the `command_id` of a command that a plane sends."""
    return is_id(text) and not text.startswith(COMPENSATION_PREFIX)


def operation_id(scope: str, run_id: RunId, command_id: CommandId) -> OperationId:
    """Return the id of the operation that a `tool.call` becomes: it is also its idempotency key.

    It depends on nothing that a new sandbox does not know: the same command has the same key everywhere.
    `scope` is `control.scope`, or the `driver.id` of a daemon without a plane.
    """
    text = f"{scope}\0{run_id}\0{command_id}"
    return OperationId("op_" + hashlib.sha256(text.encode("utf-8")).hexdigest()[:32])


def compensation_id(forward: OperationId) -> CommandId:
    """Return the id of the one command that compensates an operation; no plane can send it."""
    return CommandId(COMPENSATION_PREFIX + forward)


Digester: TypeAlias = Callable[[bytes], Digest]
"""Makes a digest of 64 hex digits: a plain one, or one under a key that others do not have."""


def sha256(data: bytes) -> Digest:
    """Return the plain digest of `data`: anybody can make it, and so guess a short secret from it."""
    return Digest(hashlib.sha256(data).hexdigest())


def args_digest(tool: str, arguments: JsonObject, digest: Digester = sha256) -> Digest:
    """Return what two calls with the same tool and arguments share."""
    return digest(canonical([tool, arguments]))


def definition_digest(definition: JsonObject) -> Digest:
    """Return what two listings of a tool share exactly where nothing about it changed between them."""
    return sha256(canonical(definition))


def content_digest(kind: JsonValue, run_id: JsonValue, data: JsonValue, digest: Digester = sha256) -> Digest:
    """Return what two deliveries of the same command share.

    `data` is taken as received, unknown keys included. The members of an invalid command may be any JSON.
    """
    return digest(canonical([kind, run_id, data]))
