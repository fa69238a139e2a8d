"""How a server describes its tools: what is believed of it, and whether it is still the same."""

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered, NotSent
from driver.providers.describing import Describing
from driver.providers.mcp.listing import FRESH_S
from driver.providers.mcp.settings import HttpServer
from store.records import Digest, JsonObject
from tests.driver.providers.mcp.stage import Stage, staged, stdio
from tests.driver.providers.mcp.web import Request, Web, done, rpc, web

pytestmark = pytest.mark.anyio

READS: JsonObject = {"name": "act", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
WRITES: JsonObject = {"name": "act", "inputSchema": {}, "annotations": {"readOnlyHint": False}}


async def answer(_web: Web, stream: SocketStream, request: Request) -> None:
    """Do what was asked."""
    await stream.send(rpc(request, done()))


def served_by(server: Web) -> HttpServer:
    """Where the server is."""
    return HttpServer(url=f"http://127.0.0.1:{server.port}/mcp")


def describing(stage: Stage) -> Describing:
    """The provider, by what it can do."""
    assert isinstance(stage.provider, Describing)
    return stage.provider


@pytest.mark.parametrize(
    ("tools", "trusted", "reads"),
    [([READS], True, True), ([READS], False, False), ([WRITES], True, False), ([], True, False)],
)
async def test_a_read_only_hint_counts_where_it_is_trusted(
    tmp_path: Path, tools: list[JsonObject], *, trusted: bool, reads: bool
) -> None:
    """And only once the server has said so: nobody is asked for it."""
    async with web(answer=answer) as server:
        server.tools = [*tools]
        async with staged(served_by(server), tmp_path / "ledger", trust_annotations=trusted) as stage:
            assert not describing(stage).reads("act")
            assert isinstance(await describing(stage).definition("act"), NotSent) != bool(tools)
            assert describing(stage).reads("act") == reads


async def test_a_hint_of_a_server_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    """The next one may be another."""
    async with web(answer=answer) as server:
        server.tools = [READS]
        async with staged(served_by(server), tmp_path / "ledger", trust_annotations=True) as stage:
            await stage.dispatch(stage.call("act"))
            assert describing(stage).reads("act")
            assert stage.provider is not None
            await stage.provider.close()
            assert not describing(stage).reads("act")


async def test_the_digest_of_a_definition_is_that_of_what_is_served_now(tmp_path: Path) -> None:
    """The list is asked for again: nobody announces a change over this wire."""
    async with web(answer=answer) as server, staged(served_by(server), tmp_path / "ledger") as stage:
        server.tools = [READS]
        first = await describing(stage).definition("act")
        await anyio.sleep(FRESH_S)
        same = await describing(stage).definition("act")
        server.tools = [{**READS, "description": "and more"}]
        await anyio.sleep(FRESH_S)
        changed = await describing(stage).definition("act")
    assert isinstance(first, str)
    assert first == same
    assert first != changed


async def test_a_call_that_was_approved_is_sent_to_no_other_tool_of_that_name(tmp_path: Path) -> None:
    """The definition is looked at once more where nothing waits before the first byte."""
    async with web(answer=answer) as server, staged(served_by(server), tmp_path / "ledger") as stage:
        approved = await describing(stage).definition("act")
        assert isinstance(approved, str)
        call = stage.call("act")
        assert isinstance(await stage.dispatch(replace(call, definition=approved)), Answered)
        refused = await stage.dispatch(replace(call, definition=Digest("0" * 64)))
        assert isinstance(refused, NotSent)
        assert (refused.reason, stage.phases) == ("unknown_tool", [])
        assert len(server.calls()) == 1


async def test_what_is_not_served_has_no_definition(tmp_path: Path) -> None:
    """Neither has what cannot be reached."""
    async with web(answer=answer) as server, staged(served_by(server), tmp_path / "ledger") as stage:
        missing = await describing(stage).definition("other")
        assert isinstance(missing, NotSent)
        assert missing.reason == "unknown_tool"
    async with staged(served_by(server), tmp_path / "ledger") as stage:
        unreached = await describing(stage).definition("act")
    assert isinstance(unreached, NotSent)
    assert unreached.reason == "connect_failed"


async def test_two_starts_of_one_server_serve_the_same_definition(tmp_path: Path) -> None:
    """A restart of the server takes no approval away."""
    found: list[object] = []
    for _ in range(2):
        async with staged(stdio("counter_mcp.py", tmp_path / "ledger"), tmp_path / "ledger") as stage:
            found.append(await describing(stage).definition("count"))
            assert isinstance(await stage.dispatch(stage.call("count", {"n": 1})), Answered)
    assert found[0] == found[1]
