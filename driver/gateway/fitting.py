"""Whether clients can read what a provider lists: one entry that they cannot would cost them the whole list.

Part of `driver.gateway`; imports the SDK's models and the store's values.
"""

from typing import Final

from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from store.records import JsonObject

_VERSIONS: Final = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
_CACHE: Final[JsonObject] = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}


def fits(method: str, member: str, entry: JsonObject) -> bool:
    """Whether an entry is one that MCP knows, in both eras.

    `method` is what lists such, and `member` where its result has them.
    """
    try:
        for version in _VERSIONS:
            methods.serialize_server_result(method, version, {member: [entry], **_CACHE})
    except ValidationError:
        return False
    return True
