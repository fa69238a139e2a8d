"""What a bearer token looks like. Pure; imports the standard library alone."""

import re
from typing import Final

_TOKEN: Final = re.compile(r"[!-~]+")
"""What can stand in a header: visible ASCII, so that no token can forge a second header line."""


def fault_of(token: str) -> str | None:
    """Return what is wrong with a token, behind whose name it is said; None where it is one."""
    if not token:
        return "is empty"
    return None if _TOKEN.fullmatch(token) else "holds something else than one word of visible ASCII"
