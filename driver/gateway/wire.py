"""What the relay and the daemon agree on: the greeting on `gateway.sock`, and the names of what is ours.

Part of `driver.gateway`; imports the standard library alone, for the relay does.

A connection begins with one line each way. The relay says whom it speaks for:

    {"effectd": "gateway", "version": 1, "instance": "…", "run_id": "…", "resumes": ["…"]}

and the daemon that it listens (`{"effectd": "gateway", "version": 1, "journal_id": "…"}`), or why not (with
`refused` and `message`). Behind that go MCP's own JSON-RPC messages, one a line.
"""

import json
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Message: TypeAlias = dict[str, Json]

VERSION: Final = 1
NAME: Final = "effectd"
"""How the server calls itself."""

COMMAND_ID: Final = "dev.effectd/command-id"
"""In the `_meta` of a `tools/call` of the relay: the id under which the journal shall know it."""
ASKED_AT: Final = "dev.effectd/asked-at"
"""Beside it where the call is asked about again: when it was asked first, in seconds since the epoch."""
JOURNAL_ID: Final = "dev.effectd/journal-id"
"""Beside that: the journal of the daemon that it was sent to first. Another one may not know of it."""
OURS: Final = "dev.effectd/"
"""Begins every member of `_meta` that is ours; what a client sends under such a name is dropped."""
DELIVERED: Final = "notifications/dev.effectd/delivered"
"""The relay's word that the agent has the answer of `commandId`."""
COMMAND_PREFIX: Final = "gateway:"
"""Begins the command ids of calls that come through the gateway."""

GREETING_BYTES_MAX: Final = 65_536
LINE_BYTES_MAX: Final = 4_194_304
"""One message of a client; the SDK has the same bound for a request over HTTP."""

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""The member of `_meta` that a request of the newer era has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """Whom a relay speaks for. `instance` is the same for all connections of one relay, and no other's."""

    instance: str
    run_id: str
    resumes: tuple[str, ...] = ()

    def line(self) -> bytes:
        """Return it as the first line of a connection."""
        return line(
            {
                "effectd": "gateway",
                "version": VERSION,
                "instance": self.instance,
                "run_id": self.run_id,
                "resumes": list(self.resumes),
            }
        )


def read_greeting(data: bytes) -> Greeting | None:
    """Return the greeting that a line is; None where it is none, or one of another version."""
    message = read(data)
    match message:
        case {
            "effectd": "gateway",
            "version": 1,
            "instance": str() as instance,
            "run_id": str() as run_id,
            "resumes": list() as resumes,
        } if all(isinstance(run, str) for run in resumes):
            return Greeting(instance=instance, run_id=run_id, resumes=tuple(map(str, resumes)))
        case _:
            return None


def line(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read(data: bytes) -> Message | None:
    """Return the JSON object that a line is; None where it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return cast("Message", value) if isinstance(value, dict) else None


def member(message: Message, name: str) -> Message:
    """Return a member that is an object; an empty one where it is none."""
    value = message.get(name)
    return value if isinstance(value, dict) else {}
