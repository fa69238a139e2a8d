"""What ends before the first byte of a request: provably nothing was executed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import AnyByteStream, SocketAttribute

from driver.core.attempts import Answered, NotSent, Phase
from driver.providers.http.exchange import Exchange
from tests.driver.link.test_dial import certificate
from tests.driver.providers.http.site import (
    Site,
    http,
    says,
    site,
)
from tests.driver.providers.http.stage import (
    ANSWERED,
    DEADLINE_S,
    Stage,
    endpoint,
    on_stage,
    server_context,
    settings,
    staged,
)

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def reaching(url: str) -> AsyncGenerator[Stage]:
    """A provider of this address, with one tool."""
    async with staged(settings(url, {"act": endpoint()})) as stage:
        yield stage


async def refused_both_ways(stage: Stage, reason: str = "connect_failed") -> str:
    """A call is `NotSent`, prepared or not, and nothing in its phases says that a byte may have left."""
    prepared = await stage.provider.prepare(stage.call())
    dispatched = await stage.dispatch()
    assert isinstance(prepared, NotSent)
    assert isinstance(dispatched, NotSent)
    assert (prepared.reason, dispatched.reason) == (reason, reason)
    assert not any(phase.may_have_left for phase in stage.phases)
    return dispatched.message


async def test_a_refused_connection_is_not_sent() -> None:
    """Nobody listens: provably nothing left."""
    async with site(says()) as made:
        port = made.port
    async with reaching(f"http://127.0.0.1:{port}") as stage:
        assert f"cannot connect to 127.0.0.1:{port}" in await refused_both_ways(stage)
        assert stage.phases == [Phase.CONNECTING]


async def test_a_name_that_does_not_resolve_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS fails before the call was written."""
    monkeypatch.setattr("driver.providers.http.exchange.CONNECT_S", 1.0)
    async with reaching("http://nowhere.invalid/v1") as stage:
        assert "nowhere.invalid" in await refused_both_ways(stage)


@pytest.mark.parametrize("url", ["http://exa mple/", "http://[::z]/", "http://a..b/"])
async def test_a_base_that_is_no_address_is_not_sent(url: str) -> None:
    """What the configuration lets through, and no library takes, fails each call and not the daemon."""
    async with reaching(url) as stage:
        await refused_both_ways(stage)
        assert isinstance(await stage.provider.reach(), NotSent)


async def test_a_certificate_of_an_unknown_authority_is_not_sent(tmp_path: Path) -> None:
    """TLS is verified, always: the handshake fails before the call was written."""
    tls = server_context(certificate(tmp_path, "site"))
    async with site(says(http()), tls=tls) as made:
        async with reaching(f"https://127.0.0.1:{made.port}") as stage:
            assert "certificate verify failed" in await refused_both_ways(stage)
        assert made.requests == []


async def test_a_certificate_of_the_systems_authorities_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenSSL's own variable names a private authority; a connection that is held tells when it is dead."""
    files = certificate(tmp_path, "site")
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    async with (
        site(says(http()), tls=server_context(files)) as made,
        reaching(f"https://127.0.0.1:{made.port}") as stage,
    ):
        assert isinstance(await stage.run(), Answered)
        assert stage.phases == [Phase.WRITING, Phase.WRITTEN, Phase.ANSWERED]
        assert len(made.requests) == 1


async def test_a_site_without_tls_is_not_sent() -> None:
    """What answers a handshake with something else gets nothing of the call."""

    class Plain(Site):
        async def serve(self, stream: AnyByteStream) -> None:
            await stream.send(http())
            await stream.aclose()

    async with site(says(), kind=Plain) as made, reaching(f"https://127.0.0.1:{made.port}") as stage:
        await refused_both_ways(stage)


@asynccontextmanager
async def deaf_site() -> AsyncGenerator[int]:
    """A port where the kernel takes connections, and nobody ever says a word: TLS never comes to be."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        yield listener.extra(SocketAttribute.local_port)


async def test_a_connection_that_takes_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting has a bound of its own."""
    monkeypatch.setattr("driver.providers.http.exchange.CONNECT_S", 0.1)
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        await refused_both_ways(stage)


async def test_a_deadline_before_the_first_byte_is_not_sent() -> None:
    """The deadline passes while the connection is made: nothing left, and nothing will."""
    async with deaf_site() as port, reaching(f"https://127.0.0.1:{port}") as stage:
        report = await stage.dispatch(timeout_s=DEADLINE_S)
        assert isinstance(report, NotSent)
        assert (report.reason, stage.phases) == ("deadline", [Phase.CONNECTING])


async def test_a_deadline_that_has_passed_already_is_not_sent() -> None:
    """A prepared call whose time is over is taken back."""
    async with on_stage(says(http())) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        report = await stage.dispatch(replace(call, timeout_s=0))
        assert isinstance(report, NotSent)
        assert report.reason == "deadline"
        await made.until(lambda made: made.gone == 1)
        assert made.requests == []


async def test_a_server_that_hangs_up_on_a_prepared_call_gets_it_on_a_new_connection() -> None:
    """A held connection that has died is seen before the first byte: nothing is written into it."""

    class Impatient(Site):
        async def serve(self, stream: AnyByteStream) -> None:
            if self.connections:
                await super().serve(stream)
                return
            self.connections += 1
            await self.go_on.wait()
            await stream.aclose()
            self.gone += 1
            self.news()

    async with on_stage(says(http()), kind=Impatient) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        made.go_on.set()
        await made.until(lambda made: made.gone == 1)
        assert isinstance(await stage.dispatch(call), Answered)
        assert stage.phases == ANSWERED
        assert (made.connections, len(made.requests)) == (2, 1)


class Talker(Site):
    """It says something on its first connection before it was asked."""

    async def serve(self, stream: AnyByteStream) -> None:
        if self.connections == 0:
            await stream.send(http(408))
            self.connections += 1
            self.news()
            await self.told_to_go_on(stream)
            await anyio.aclose_forcefully(stream)
        else:
            await super().serve(stream)


async def test_a_server_that_speaks_before_it_is_asked_is_asked_on_a_new_connection() -> None:
    """What it says then can be no answer: nothing is written on that connection."""
    async with on_stage(says(http()), kind=Talker) as (made, stage):
        call = stage.call()
        assert await stage.provider.prepare(call) is None
        await made.until(lambda made: made.connections == 1)
        assert isinstance(await stage.dispatch(call), Answered)
        assert (made.connections, len(made.requests)) == (2, 1)


async def test_the_last_look_at_a_connection_is_just_before_the_first_byte() -> None:
    """A connection that is spoilt while its request is let go proves that nothing left."""
    async with site(says(http()), kind=Talker) as made, anyio.create_task_group() as tasks:
        exchange = Exchange(httpx2.Request("GET", f"http://127.0.0.1:{made.port}/"), 1_000)
        async with httpx2.AsyncHTTPTransport() as transport:
            tasks.start_soon(exchange.run, transport)
            await exchange.poised.wait()
            await made.until(lambda made: made.connections == 1)
            exchange.release()
            await exchange.ended.wait()
        assert isinstance(exchange.reply, NotSent)
        assert (exchange.reply.reason, exchange.begun) == ("connect_failed", False)


async def test_reaching_a_site_sends_nothing() -> None:
    """`effectd check --connect` asks whether a connection can be made, and no more."""
    async with on_stage(says(http())) as (made, stage):
        assert await stage.provider.reach() is None
        await made.until(lambda made: made.gone == 1)
        assert made.requests == []
