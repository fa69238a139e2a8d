"""What imported servers, and the files of their secrets, are called.

Part of `driver.importing`, pure: imports nothing of ours.
"""

import re
from collections.abc import Container
from typing import Final

PROVIDER_CHARS_MAX: Final = 32
"""The gateway's names have room for 50 characters, tools' own included."""
FILE_CHARS_MAX: Final = 100
OWN: Final = "effectd"
"""The gateway keeps this name for its own tools."""


def provider_name(name: str, taken: Container[str]) -> str:
    """Return a name that the configuration allows, as near to `name` as can be, and none of `taken`."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:PROVIDER_CHARS_MAX].strip("-")
    return _free(plain if plain and plain != OWN else f"{plain or 'mcp'}-server", taken)


def file_name(provider: str, value: str, taken: Container[str]) -> str:
    """Return the name of the file that holds `value` of a provider, and none of `taken`."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", value)
    return _free(f"{provider}.{plain}"[:FILE_CHARS_MAX], taken)


def _free(name: str, taken: Container[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
