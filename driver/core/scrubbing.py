"""Finds values that were withheld where somebody quotes them: in error texts, other members, receipts.

Part of `driver.core`, pure: imports `driver.core.{redaction,strictjson}` and the store's JSON.

Theory of operation
-------------------
What counts as a quote depends on how much a value has to lose in one:

* a value of `QUOTE_MIN` characters or more is quoted by any `QUOTE_MIN` of them in a row, because peers cut
  what they quote; one of `WHOLE_MIN` or more, by all of it. Such a quote is replaced by the marker, and the
  text around it stays;
* a shorter one (a PIN) could be told from the gap that it leaves, and from its length. A text that holds it
  is withheld as a whole. Below `ANYWHERE_MIN` characters it must stand by itself: the letter `a` is not
  quoted by every word that has one, and 7 not by 17;
* `true`, `false` and null are quoted by nothing: they tell too little, and stand everywhere. So do, below
  `ANYWHERE_MIN` characters, values without a letter or digit, and the short keys of what was withheld.

Letter case does not matter, and values are looked for as JSON, Python, URLs, HTML and Base64 write them, too.

How: each value is cut into windows of `WHOLE_MIN` characters, far enough apart that any quote contains one
whole, and looked up at each position of a text. Where one is found, the quote is as long as text and value
agree. Both sides are bounded: more windows than `WINDOWS_MAX` are spread thinner, and when `STEPS_MAX`
positions were looked at, the texts that remain are withheld unread.
"""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from driver.core.redaction import MARKER
from driver.core.strictjson import dumps_compact, integer_text
from store.records import JsonObject, JsonValue

QUOTE_MIN: Final = 12
WHOLE_MIN: Final = 8
ANYWHERE_MIN: Final = 4
WINDOWS_MAX: Final = 65_536
"""About 10 MB while one answer is looked through; a value of 300,000 characters needs as many."""
STEPS_MAX: Final = 2_097_152
"""Positions of one answer's texts: about 0.2 s."""
FORMS_CHARS_MAX: Final = 4_096
"""Longer values are looked for as they are, and as JSON: in the other forms, too, much of them is plain."""
FEW: Final = 64
"""So many windows are first looked for one by one, in the whole text at a time."""
FIND_STEPS: Final = 128
"""Positions that one window is looked for at, in the time that a step takes."""

_STRIDE: Final = QUOTE_MIN - WHOLE_MIN + 1
_SHARED_MAX: Final = 8
"""Values that share a window: beyond it, the window alone is taken for the quote."""


class Scrubber:
    """Knows what must not come back, for one answer after the other: each has a budget of steps."""

    def __init__(self, withheld: Iterable[JsonValue]) -> None:
        self._steps = STEPS_MAX
        self._forms: list[str] = []
        self._windows: dict[str, list[tuple[int, int]]] = {}
        self._wholes: dict[str, list[str]] = {}
        self._shorts: dict[int, set[str]] = {}
        texts = {text for value in withheld for text in _texts(value)}
        forms = (form.lower() for text in texts if len(text) >= WHOLE_MIN for form in _forms(text))
        self._index(list(dict.fromkeys(forms)))
        for text in texts:
            if _counts(text) and len(text) < WHOLE_MIN:
                self._shorts.setdefault(len(text), set()).add(text.lower())

    def __bool__(self) -> bool:
        return bool(self._windows or self._wholes or self._shorts)

    def renew(self) -> None:
        """Begin another answer, with a whole budget."""
        self._steps = STEPS_MAX

    def value(self, value: JsonValue) -> JsonValue:
        """Return `value` with every quote in it replaced: in texts, in keys, and where a number is one.

        The value's depth must be bounded.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._members(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if value is None or isinstance(value, bool) or not self:
            return value
        return value if self._is_clean(_number(value)) else MARKER

    def text(self, text: str) -> str:
        """Return `text` without quotes; the marker alone where a short value stands in it."""
        if not text or text == MARKER or not self:
            return text
        low = text.lower()
        if not self._afford(low) or self._has_short(low):
            return MARKER
        spans = self._spans(low)
        if not spans:
            return text
        if len(low) != len(text):
            return MARKER  # the positions are those of the lower-case text
        return _replaced(text, spans)

    # ------------------------------------------------------------ what is looked for

    def _index(self, forms: list[str]) -> None:
        long = [form for form in forms if len(form) >= QUOTE_MIN]
        stride = max(_STRIDE, -(-sum(map(len, long)) // WINDOWS_MAX))
        for form in forms:
            if len(form) < QUOTE_MIN:
                self._wholes.setdefault(form[:WHOLE_MIN], []).append(form)
        for number, form in enumerate(long):
            last = len(form) - WHOLE_MIN
            for start in (*range(0, last, stride), last):
                found = self._windows.setdefault(form[start : start + WHOLE_MIN], [])
                if len(found) <= _SHARED_MAX:
                    found.append((number, start))
        self._forms = long

    # ------------------------------------------------------------ looking

    def _members(self, value: JsonObject) -> JsonObject:
        kept: JsonObject = {}
        for key, item in value.items():
            name = shown = self.text(key)
            count = 1
            while name in kept:
                count += 1
                name = f"{shown} {count}"
            kept[name] = self.value(item)
        return kept

    def _is_clean(self, text: str) -> bool:
        low = text.lower()
        return self._afford(low) and not self._has_short(low) and not self._spans(low)

    def _afford(self, low: str) -> bool:
        """Whether the budget allows this text; takes off what it costs."""
        needles = (len(self._windows) + len(self._wholes), *map(len, self._shorts.values()))
        self._steps -= sum(len(low) if many > FEW else len(low) * many // FIND_STEPS for many in needles)
        return self._steps >= 0

    def _has_short(self, low: str) -> bool:
        for length, shorts in self._shorts.items():
            starts: Iterable[int]
            if len(shorts) <= FEW:
                starts = (at for short in shorts for at in _occurrences(low, short))
            else:
                starts = (at for at in range(len(low) - length + 1) if low[at : at + length] in shorts)
            if any(length >= ANYWHERE_MIN or _stands_alone(low, at, at + length) for at in starts):
                return True
        return False

    def _spans(self, low: str) -> list[tuple[int, int]]:
        windows, wholes = self._windows, self._wholes
        if len(windows) + len(wholes) <= FEW and not any(needle in low for needle in (*windows, *wholes)):
            return []
        spans: list[tuple[int, int]] = []
        at, last = 0, len(low) - WHOLE_MIN
        while at <= last:
            window = low[at : at + WHOLE_MIN]
            if window in windows or window in wholes:
                start, end = self._extent(low, at, window)
                if end > start:
                    spans.append((start, end))
                    at = max(at, end - WHOLE_MIN)
            at += 1
        return spans

    def _extent(self, low: str, at: int, window: str) -> tuple[int, int]:
        """How far the quote around the window at `at` reaches; nowhere where it is none."""
        start = end = at
        for whole in self._wholes.get(window, ()):
            if low.startswith(whole, at):
                end = max(end, at + len(whole))
        found = self._windows.get(window, [])
        if len(found) > _SHARED_MAX:
            end = max(end, at + WHOLE_MIN)
        for number, offset in found:
            form = self._forms[number]
            left, right = _agreement(low, at, form, offset)
            if right - left >= QUOTE_MIN:
                start, end = min(start, left), max(end, right)
        return start, end


def _counts(text: str) -> bool:
    """Whether a short value has anything to lose."""
    return len(text) >= ANYWHERE_MIN or any(char.isalnum() for char in text)


def _texts(value: JsonValue) -> Iterator[str]:
    """The texts and numbers in a withheld value, and its longer keys: short ones are taken for a schema's."""
    if isinstance(value, dict):
        for key, item in value.items():
            if len(key) >= WHOLE_MIN:
                yield key.strip()
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value.strip()
    elif value is not None and not isinstance(value, bool):
        yield _number(value)


def _number(value: float) -> str:
    return integer_text(value) if isinstance(value, int) else dumps_compact(value)


def _forms(text: str) -> Iterator[str]:
    """The ways in which a longer value is written."""
    yield text
    yield json.dumps(text)[1:-1]
    if len(text) > FORMS_CHARS_MAX:
        return
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield html.escape(text)
    data = text.encode("utf-8")
    percent = "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in data)
    yield percent
    yield percent.replace("%20", "+")
    yield b64encode(data).decode("ascii").rstrip("=")
    yield urlsafe_b64encode(data).decode("ascii").rstrip("=")


_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""What a URL holds as it is (RFC 3986, section 2.3)."""


def _occurrences(low: str, short: str) -> Iterator[int]:
    at = low.find(short)
    while at >= 0:
        yield at
        at = low.find(short, at + 1)


def _stands_alone(low: str, start: int, end: int) -> bool:
    """Whether no letter continues a letter, and no digit a digit. In scripts without spaces none does."""
    return not (
        (start > 0 and _continues(low[start - 1], low[start]))
        or (end < len(low) and _continues(low[end - 1], low[end]))
    )


def _continues(left: str, right: str) -> bool:
    if not (left.isascii() and right.isascii()):
        return False
    return (left.isalpha() and right.isalpha()) or (left.isdecimal() and right.isdecimal())


def _agreement(low: str, at: int, form: str, offset: int) -> tuple[int, int]:
    """Where the longest part of `low` around `at` that agrees with `form` around `offset` begins and ends."""
    ahead = _longest(
        min(len(low) - at, len(form) - offset), lambda n: low.startswith(form[offset : offset + n], at)
    )
    behind = _longest(min(at, offset), lambda n: low.startswith(form[offset - n : offset], at - n))
    return at - behind, at + ahead


def _longest(limit: int, agrees: Callable[[int], bool]) -> int:
    """The largest number up to `limit` that `agrees` holds for, which holds for every smaller one, too."""
    high = 1
    while high <= limit and agrees(high):
        high *= 2
    low, high = high // 2, min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if agrees(middle) else (low, middle)
    return low


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with one marker for each run of quotes that touch."""
    parts: list[str] = []
    done = 0
    for start, end in _merged(spans):
        parts += (text[done:start], MARKER)
        done = end
    return "".join((*parts, text[done:]))


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first, last = 0, -1
    for start, end in sorted(spans):
        if start > last:
            if last >= 0:
                yield first, last
            first, last = start, end
        last = max(last, end)
    yield first, last
