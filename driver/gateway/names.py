"""What the tools of all providers are called in one list: `provider__tool`.

Part of `driver.gateway`; imports `driver.core.contracts`.

Clients give a model names of letters, digits, `_` and `-`, 64 of them at most, and put the server's name in
front (`mcp__effectd__`). A name that does not fit is mended and gets a part of the digest of the whole one
behind it: so no two are alike, and one does not change because another tool came or went.
"""

import hashlib
import re
from typing import Final

from driver.core.contracts import ToolName

SEPARATOR: Final = "__"
OWN: Final = "effectd"
"""Begins the names of our own tools; a provider of that name has all of its tools mended."""
NAME_MAX: Final = 50
"""64, which is what models' APIs take, without the `mcp__effectd__` that clients put in front."""
_TAIL: Final = 8
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def exposed(tool: ToolName) -> str:
    """Return what a tool is called in the gateway's list."""
    whole = f"{tool.provider}{SEPARATOR}{tool.tool}"
    plain = _FOREIGN.sub("_", whole)
    if plain == whole and len(whole) <= NAME_MAX and tool.provider != OWN:
        return whole
    tail = hashlib.sha256(str(tool).encode("utf-8", "replace")).hexdigest()[:_TAIL]
    return f"{plain[: NAME_MAX - _TAIL - 1]}_{tail}"


def parse(name: str) -> ToolName | None:
    """Return the tool that a name says plainly; None where it is no name of that form.

    A mended name says no tool plainly: only the list can tell which one it is.
    """
    provider, separator, tool = name.partition(SEPARATOR)
    return ToolName(provider, tool) if separator and tool else None
