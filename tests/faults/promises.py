"""What a program has told others by some moment, read from a recording: it must be true from then on.

Two ways of telling are understood: the lines of `tests.faults.journal_life`, and the frames of effectd.v1
that a daemon sends to its plane. What a daemon writes to a provider is looked at, too: a call that has left
needs its intent on the disk (I1).
"""

import json
import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.faults.look import Answer, Found
from tests.faults.recording import Step

_KEY: Final = re.compile(rb"op_[0-9a-f]{32}")
_CALL: Final = b'"tools/call"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What is true from now on."""

    seq: int = 0
    chain: str = ""
    gone: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    mended: bool = False
    """Whether what was wrong before is right."""
    called: frozenset[str] = frozenset()
    """Operations whose call has left."""

    def broken(self, answer: Answer, known: frozenset[str] = frozenset()) -> list[str]:
        """Return what is not true after a power loss; `known` was wrong before anything began."""
        wrong = [f"backup {name}: {problem}" for name, problem in answer.backups.items() if problem]
        wrong += [f"backup {name} was made, and is not there" for name in self.made - set(answer.backups)]
        if answer.found is None:
            return [*wrong, f"refused: {answer.refusal}"]
        found = answer.found
        wrong += [text for text in found.wrong if self.mended or text not in known]
        wrong += [f"{text} was erased, and is there" for text in sorted(self.gone & found.canaries)]
        wrong += [f"{name} was called, and has no intent" for name in sorted(self.called - found.attempts)]
        return wrong + self._events(found)

    def _events(self, found: Found) -> list[str]:
        if found.last_seq < self.seq:
            return [f"I5: event {self.seq} was told, and the journal ends at {found.last_seq}"]
        if self.seq and found.chains.get(self.seq, self.chain) != self.chain:
            return [f"event {self.seq} was told, and another one is there"]
        pruned = any(first <= self.seq <= last for first, last in found.gaps)
        if self.seq and self.seq not in found.chains and not pruned:
            return [f"event {self.seq} was told, and is missing"]
        return []


@dataclass(slots=True)
class Told:
    """The promises of a recording, as of each of its steps."""

    steps: Sequence[Step]
    first: Promises = field(default_factory=Promises)
    _at: list[int] = field(default_factory=list[int])
    _promises: list[Promises] = field(default_factory=list[Promises])

    def __post_init__(self) -> None:
        now, streams = self.first, dict[str, _Stream]()
        self._at.append(-1)
        self._promises.append(now)
        for index, step in enumerate(self.steps):
            if step.kind != "said":
                continue
            after = _after(now, step, streams.setdefault(step.path, _Stream()))
            if after is not now:
                now = after
                self._at.append(index)
                self._promises.append(now)

    def as_of(self, index: int) -> Promises:
        """Return what was true when step `index` was done."""
        return self._promises[bisect_right(self._at, index) - 1]


def _after(now: Promises, step: Step, stream: "_Stream") -> Promises:
    if _CALL in step.data:
        return replace(now, called=now.called | {key.decode() for key in _KEY.findall(step.data)})
    if step.data.startswith(b'{"') and step.path.startswith("pipe:"):
        return lines(step.data.splitlines(), now)
    for frame in stream.frames(step.data):
        if frame.get("type") == "event" and frame["seq"] > now.seq:
            now = replace(now, seq=frame["seq"], chain=frame["chain"])
    return now


def lines(said: Iterable[bytes | str], now: Promises) -> Promises:
    """Return the promises after a life said these lines."""
    for line in said:
        try:
            word: Mapping[str, Any] = json.loads(line)
        except ValueError:
            continue
        if word.get("told", 0) > now.seq:
            now = replace(now, seq=word["told"], chain=word["chain"])
        if "gone" in word:
            now = replace(now, gone=now.gone | {word["gone"]})
        if "mended" in word:
            now = replace(now, mended=True)
        if "made" in word:
            now = replace(now, made=now.made | {word["made"]})
    return now


@dataclass(slots=True)
class _Stream:
    """The client's side of a WebSocket connection."""

    buffer: bytes = b""
    is_open: bool = False

    def frames(self, data: bytes) -> Iterable[dict[str, Any]]:
        """Yield the messages that end with this piece. None of another protocol."""
        self.buffer += data
        if not self.is_open:
            if not self.buffer.startswith(b"GET /") or b"Upgrade" not in self.buffer:
                self.buffer = self.buffer[:16] if self.buffer.startswith(b"GET /") else b"-"
                return
            _, found, rest = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            self.is_open, self.buffer = True, rest
        while (message := self._message()) is not None:
            opcode, text = message
            if opcode == 1:
                yield json.loads(text)

    def _message(self) -> tuple[int, bytes] | None:
        if len(self.buffer) < 2:
            return None
        opcode, size, at = self.buffer[0] & 0x0F, self.buffer[1] & 0x7F, 2
        if size >= 126:
            kind, width = (">H", 2) if size == 126 else (">Q", 8)
            if len(self.buffer) < at + width:
                return None
            (size,) = struct.unpack_from(kind, self.buffer, at)
            at += width
        if len(self.buffer) < at + 4 + size:
            return None
        mask, masked = self.buffer[at : at + 4], self.buffer[at + 4 : at + 4 + size]
        self.buffer = self.buffer[at + 4 + size :]
        wide = int.from_bytes(mask * (size // 4 + 1), "big") >> (8 * (4 * (size // 4 + 1) - size))
        return opcode, (int.from_bytes(masked, "big") ^ wide).to_bytes(size, "big")
