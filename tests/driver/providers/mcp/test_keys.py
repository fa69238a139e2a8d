"""How the idempotency key travels over HTTP: in the one place that its carrier names."""

import json
from pathlib import Path

import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered
from driver.core.contracts import ArgumentKey, HeaderKey, KeyCarrier, MetaKey, NoKey, Sep3182Key
from driver.providers.mcp.settings import HttpServer
from store.records import JsonObject
from tests.driver.providers.mcp.stage import staged
from tests.driver.providers.mcp.web import LEGACY, MODERN, Request, Web, done, rpc, web

pytestmark = pytest.mark.anyio

KEY = "op_0123456789abcdef0123456789abcdef"
THEIRS = "a-key-of-the-callers-own"


async def answer(_web: Web, stream: SocketStream, request: Request) -> None:
    """Do what was asked."""
    await stream.send(rpc(request, done()))


async def sent(tmp_path: Path, era: str, carrier: KeyCarrier, arguments: JsonObject) -> Request:
    """The one request that a call became."""
    async with (
        web(era=era, answer=answer) as server,
        staged(
            HttpServer(url=f"http://127.0.0.1:{server.port}/mcp"), tmp_path / "ledger", key=carrier
        ) as stage,
    ):
        assert isinstance(await stage.dispatch(stage.call("act", arguments, key=KEY)), Answered)
        (request,) = server.calls()
        return request


@pytest.mark.parametrize("era", [MODERN, LEGACY])
@pytest.mark.parametrize(
    ("carrier", "place"),
    [
        (MetaKey(), ("_meta", "dev.effectd/idempotency-key")),
        (Sep3182Key(), ("idempotencyKey",)),
        (ArgumentKey("key"), ("arguments", "key")),
    ],
)
async def test_the_key_stands_in_the_body(
    tmp_path: Path, era: str, carrier: KeyCarrier, place: tuple[str, ...]
) -> None:
    """Once, and in no header."""
    request = await sent(tmp_path, era, carrier, {"n": 1})
    found: object = request.body["params"]
    for name in place:
        assert isinstance(found, dict)
        found = found[name]
    assert found == KEY
    assert json.dumps(request.body).count(KEY) == 1
    assert KEY not in request.headers.values()


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_the_key_stands_in_its_header(tmp_path: Path, era: str) -> None:
    """And not in the body, which some gateways rewrite."""
    request = await sent(tmp_path, era, HeaderKey("Idempotency-Key"), {"n": 1})
    assert request.headers["idempotency-key"] == KEY
    assert KEY not in json.dumps(request.body)


@pytest.mark.parametrize("era", [MODERN, LEGACY])
async def test_no_carrier_carries_nothing(tmp_path: Path, era: str) -> None:
    """A provider that would refuse what it does not know gets no key."""
    request = await sent(tmp_path, era, NoKey(), {"n": 1})
    assert KEY not in json.dumps(request.body)
    assert KEY not in request.headers.values()


@pytest.mark.parametrize("carrier", [MetaKey(), Sep3182Key(), HeaderKey("Idempotency-Key"), NoKey()])
async def test_a_caller_s_arguments_never_become_the_key(tmp_path: Path, carrier: KeyCarrier) -> None:
    """They stay arguments, however they are named."""
    meta: JsonObject = {"dev.effectd/idempotency-key": THEIRS}
    arguments: JsonObject = {"idempotencyKey": THEIRS, "Idempotency-Key": THEIRS, "_meta": meta}
    request = await sent(tmp_path, MODERN, carrier, arguments)
    params = request.body["params"]
    assert isinstance(params, dict)
    assert params["arguments"] == arguments
    beside = {name: value for name, value in params.items() if name != "arguments"}
    assert THEIRS not in json.dumps(beside)
    assert THEIRS not in request.headers.values()


async def test_every_attempt_carries_the_same_key(tmp_path: Path) -> None:
    """The attempts differ by their number alone, which the provider never sees."""
    async with (
        web(answer=answer) as server,
        staged(
            HttpServer(url=f"http://127.0.0.1:{server.port}/mcp"), tmp_path / "ledger", key=HeaderKey("X-Key")
        ) as stage,
    ):
        for _ in range(3):
            await stage.dispatch(stage.call("act", {}, key=KEY))
        assert [request.headers["x-key"] for request in server.calls()] == [KEY] * 3
