"""An HTTP API that remembers what was really done, whatever becomes of its clients. Part of `kill points`.

It lives in the lane's process, so its count of effects survives every kill of a daemon. Its paths:

/order    does it, and answers 200
/keyed    the same, once for a key; the first request of a key is answered 503, and the second is hung up on
          after the effect: only the third is told
/broken   does it, and answers 422
/lost     does it, and hangs up
/vain     hangs up and does nothing, the first time for a key; then as `/order`
/slow     does it after a moment, and answers 200
/orders   a read: which of the orders carry the key `marker`

and `/v1/chat/completions`: a triage model, which calls everything unknown; `/mcp`: see `office`.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import AnyByteStream

from store.records import JsonValue
from tests.driver.providers.http.site import Request, Site, http
from tests.faults.kill_points import office

SLOW_S: Final = 0.03
KEY: Final = "idempotency-key"
OPERATION: Final = re.compile("op_[0-9a-f]{32}")


@dataclass(slots=True)
class Shop:
    """What was asked of it, and what it did."""

    effects: Counter[str] = field(default_factory=Counter[str])
    """By key."""
    requests: Counter[str] = field(default_factory=Counter[str])

    async def answer(self, _site: Site, stream: AnyByteStream, request: Request) -> None:
        """Serve one request: a script of `tests.driver.providers.http.site`."""
        path, _, query = request.target.partition("?")
        if path == office.PATH:
            await office.answer(stream, request, self.effects)
            return
        key = request.headers.get(KEY, "")
        if path == "/orders":
            await stream.send(self._found(query.partition("marker=")[2]))
            return
        if path.endswith("/chat/completions"):
            await stream.send(_judged(request))
            return
        self.requests[key] += 1
        said = await self._do(path, key)
        if said is None:
            await stream.aclose()
        else:
            await stream.send(said)

    def _found(self, marker: str) -> bytes:
        orders: list[JsonValue] = [marker] if self.effects[marker] else []
        return http(200, json.dumps({"orders": orders}).encode())

    async def _do(self, path: str, key: str) -> bytes | None:
        """Return what to answer; None: nothing."""
        first, second = self.requests[key] == 1, self.requests[key] == 2
        if path == "/vain" and first:
            return None
        if path == "/keyed" and first:
            return http(503, b"{}")
        if path == "/slow":
            await anyio.sleep(SLOW_S)
        if path != "/keyed" or not self.effects[key]:
            self.effects[key] += 1
        if path == "/lost" or (path == "/keyed" and second):
            return None
        return http(422 if path == "/broken" else 200, json.dumps({"id": key}).encode())


def _judged(request: Request) -> bytes:
    ids = dict.fromkeys(OPERATION.findall(request.body.decode()))
    verdicts = [{"operation_id": name, "effect": "unknown", "basis": "nothing says what"} for name in ids]
    text = json.dumps({"needs_attention": True, "summary": "as it was", "verdicts": verdicts})
    return http(body=json.dumps({"choices": [{"message": {"content": text}}]}).encode())
