"""What the head of an HTTP request may hold, so that no value can become another header, or another request.

Part of `driver.core`, pure: imports nothing of ours.
"""

import re
from typing import Final

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""What a tool's request may be. The others say how requests travel, or have bodies that are no JSON."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
VALUE_CHARS_MAX: Final = 8_192
"""Servers commonly take this much for a header."""

OWN: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that say how the request itself travels: the daemon's alone. In lower case."""


def wrong_name(name: str) -> str | None:
    """Return why `name` cannot be a header of a tool's request, None where it can."""
    if not _NAME.fullmatch(name):
        return "no name of a header: it is made of letters, digits and hyphens"
    if name.lower() in OWN or name.lower().startswith("proxy-"):
        return "it says how the request travels, which is the daemon's own business"
    return None


def wrong_value(value: str) -> str | None:
    """Return why `value` cannot be a header's value, None where it can. Never quotes it."""
    if len(value) > VALUE_CHARS_MAX:
        return f"longer than {VALUE_CHARS_MAX:,} characters"
    if not _VALUE.fullmatch(value):
        return "it must be ASCII text, without line breaks, control characters and spaces around it"
    return None
