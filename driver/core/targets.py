"""What a request asks for, in the one form that our HTTP servers' routes are written in.

Part of `driver.core`, pure: imports nothing of ours.
"""

from collections.abc import MutableMapping
from typing import Any, Final

_SCHEMES: Final = frozenset({"http", "https"})


def take_origin_form(scope: MutableMapping[str, Any]) -> None:
    """Make an ASGI scope's path one that begins with a slash, where the target was a whole URL.

    A server must accept that (RFC 9112, 3.2.2), and whose name stands in it does not matter: each socket
    serves one API. uvicorn leaves such a target as it is.
    """
    path, raw_path = str(scope["path"]), bytes(scope["raw_path"])
    scheme, _, rest = path.partition("://")
    if scheme.lower() in _SCHEMES:
        scope["path"] = "/" + rest.partition("/")[2]
        scope["raw_path"] = b"/" + raw_path.partition(b"://")[2].partition(b"/")[2]
