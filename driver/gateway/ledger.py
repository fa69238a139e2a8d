"""What a relay remembers of its client's requests until they are answered.

Part of `driver.gateway`; imports its `wire` alone.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from driver.gateway.wire import (
    ASKED_AT,
    COMMAND_ID,
    COMMAND_PREFIX,
    JOURNAL_ID,
    OURS,
    PROTOCOL_VERSION,
    Json,
    Message,
    line,
    member,
)

CALL: Final = "tools/call"
PASSED_MAX: Final = 1_024
"""Calls whose answers were passed on last; the client may not have read them yet."""
CANCELLED_MAX: Final = 1_024
"""Requests that were cancelled last; an answer to one may be on its way yet."""


@dataclass(slots=True, eq=False)
class Entry:
    """One request that is not answered. `command_id` is a call's, the same whenever it is asked about."""

    message: Message
    data: bytes = b""
    """The message as it is sent the first time."""
    command_id: str | None = None
    sent: bool = False
    """Whether the daemon may have got it."""
    sent_at: float = 0.0
    journal_id: str | None = None
    """Of the daemon that it was sent to first."""
    cancelled: Message | None = None
    """The client's word that it does not want an answer any more, which the daemon has not got."""
    since: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> Json:
        """The client's own id for it."""
        return self.message["id"]

    @property
    def method(self) -> str:
        """What is asked for."""
        return str(self.message["method"])

    @property
    def modern(self) -> bool:
        """Whether the request is one of the newer era."""
        return PROTOCOL_VERSION in member(member(self.message, "params"), "_meta")

    def asked(self, journal_id: str | None) -> bytes:
        """Return the line to send to the daemon of that journal, and take note that it may have arrived.

        A second time says that it is one, and which journal had it first.
        """
        if not self.sent:
            self.sent, self.sent_at, self.journal_id = True, time.time(), journal_id
            return self.data
        if self.command_id is None:
            return self.data
        ours: Message = {COMMAND_ID: self.command_id, ASKED_AT: self.sent_at}
        if self.journal_id is not None:
            ours[JOURNAL_ID] = self.journal_id
        return line(_with_meta(self.message, ours))


class Ledger:
    """All requests that are not answered, in their order; and the last calls that are."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._passed: OrderedDict[str, str] = OrderedDict()
        """Commands whose answers were passed on, by the client's id for them."""
        self._cancelled: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def enter(self, message: Message, data: bytes) -> Entry:
        """Remember a request, which came as `data`.

        A call gets the random id under which it is known for good. Raises `ValueError` where a call has a
        number that cannot be passed on.
        """
        entry = Entry(message, data + b"\n")
        if message["method"] == CALL:
            entry.command_id = f"{COMMAND_PREFIX}{uuid4().hex}"
            entry.message = _with_meta(message, {COMMAND_ID: entry.command_id})
            entry.data = line(entry.message)
        self._entries[_key(message["id"])] = entry
        self._passed.pop(_key(message["id"]), None)
        return entry

    def find(self, request_id: Json) -> Entry | None:
        """Return the request of that id, if it is not answered."""
        return self._entries.get(_key(request_id))

    def settle(self, request_id: Json) -> Entry | None:
        """Forget a request that is answered, or not wanted any more; return it, None without one."""
        return self._entries.pop(_key(request_id), None)

    def cancel(self, entry: Entry) -> None:
        """Forget a request that the daemon got, and is told to leave: its answer may come all the same."""
        self.settle(entry.id)
        self._cancelled[_key(entry.id)] = None
        if len(self._cancelled) > CANCELLED_MAX:
            self._cancelled.popitem(last=False)

    def is_cancelled(self, request_id: Json) -> bool:
        """Whether an answer to a request of that id would be taken for one to another of the same."""
        return _key(request_id) in self._cancelled

    def passed(self, entry: Entry) -> None:
        """Take note that the answer of a call is written to the client."""
        if entry.command_id is not None:
            self._passed[_key(entry.id)] = entry.command_id
            if len(self._passed) > PASSED_MAX:
                self._passed.popitem(last=False)

    def is_passed(self, entry: Entry) -> bool:
        """Whether the answer of a call was written, and the client has not said that it gave up on it."""
        return entry.command_id is not None and self._passed.get(_key(entry.id)) == entry.command_id

    def given_up(self, request_id: Json) -> str | None:
        """Return the command whose answer crossed the client's word that it wants none; None without one."""
        return self._passed.pop(_key(request_id), None)


def _with_meta(message: Message, ours: Message) -> Message:
    """The message with our own members in its `_meta`, and no such name from elsewhere; its id first."""
    params = member(message, "params")
    theirs = {name: value for name, value in member(params, "_meta").items() if not name.startswith(OURS)}
    first: Message = {"jsonrpc": "2.0", "id": message["id"]}
    return {**first, **message, "params": {**params, "_meta": {**theirs, **ours}}}


def _key(request_id: Json) -> str:
    """1 and "1" are one id: some peers send a number back as text."""
    return str(request_id)
