"""A provider that has connected to a server over HTTP, and usual answers for that server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio.abc import SocketStream

from driver.core.contracts import KeyCarrier
from driver.providers.mcp.settings import HttpServer
from tests.driver.providers.mcp.stage import LATE_S, Stage, staged
from tests.driver.providers.mcp.web import (
    MODERN,
    Answer,
    Request,
    Web,
    done,
    rpc,
    web,
)


@asynccontextmanager
async def connected(
    tmp_path: Path,
    answer: Answer,
    *,
    era: str = MODERN,
    key: KeyCarrier | None = None,
    session: str | None = None,
    late_result_s: float = LATE_S,
) -> AsyncGenerator[tuple[Web, Stage]]:
    """A server that answers calls with `answer`, and a provider that has connected to it."""
    async with web(era=era, answer=answer) as server:
        server.session = session
        url = f"http://127.0.0.1:{server.port}/mcp"
        ledger = tmp_path / "ledger"
        async with staged(HttpServer(url=url), ledger, key=key, late_result_s=late_result_s) as stage:
            assert stage.provider is not None
            assert await stage.provider.prepare(stage.call("act")) is None
            yield server, stage


def says(data: bytes) -> Answer:
    """Answer with these bytes, whatever was asked."""

    async def answer(_server: Web, stream: SocketStream, _request: Request) -> None:
        await stream.send(data)

    return answer


async def succeeds(_server: Web, stream: SocketStream, request: Request) -> None:
    """Answer with a success."""
    await stream.send(rpc(request, done()))


async def hangs_up(_server: Web, stream: SocketStream, _request: Request) -> None:
    """Close the connection without a word."""
    await stream.aclose()
