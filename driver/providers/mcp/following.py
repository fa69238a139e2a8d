"""What a server says unasked, for whoever wants to hear it: how far a call is, and that its lists changed.

Part of `driver.providers.mcp`; imports its `jsonrpc` and the audience's protocol.
"""

from driver.providers.mcp.jsonrpc import LISTS_CHANGED, PROGRESS
from driver.providers.serving import Audience
from store.records import JsonObject, OperationId


class Following:
    """The calls of one connection whose progress somebody follows."""

    def __init__(self, provider: str, audience: Audience) -> None:
        self._provider = provider
        self._audience = audience
        self._followed: dict[object, OperationId] = {}
        """By the token that names the call to the server."""

    def begin(self, token: int, operation_id: OperationId) -> int | None:
        """Return the token to send with a call; None where nobody follows it."""
        if not self._audience.listens(operation_id):
            return None
        self._followed[token] = operation_id
        return token

    def end(self, token: object) -> None:
        """Follow a call no more."""
        self._followed.pop(token, None)

    def tools_changed(self) -> None:
        """Pass on that there may be other tools now."""
        self._audience.changed(self._provider)

    def told(self, message: JsonObject) -> None:
        """Pass on what is of interest in a notification."""
        if message["method"] in LISTS_CHANGED:
            self._audience.changed(self._provider)
        params = message.get("params")
        if message["method"] != PROGRESS or not isinstance(params, dict):
            return
        token = params.get("progressToken")
        followed = self._followed.get(token) if isinstance(token, int | str) else None
        if followed is not None:
            self._audience.progressed(followed, params)
