"""What a server behind a URL is shown from files: its headers, and an address that is a secret."""

from pathlib import Path

import pytest

from driver.core.attempts import NotSent
from driver.providers.mcp.settings import HttpServer
from tests.driver.providers.mcp.stage import staged
from tests.driver.providers.mcp.web import Web, web

pytestmark = pytest.mark.anyio

CANARY = "canary-5b1f0c"


def written(path: Path, text: str) -> Path:
    """Return `path` with this content."""
    path.write_text(text, encoding="utf-8")
    return path


async def prepared(server: HttpServer, tmp_path: Path) -> NotSent | None:
    """Connect as before a call, and return what stood against it."""
    async with staged(server, tmp_path / "ledger") as stage:
        assert stage.provider is not None
        return await stage.provider.prepare(stage.call("act"))


def shown(server: Web, header: str) -> set[str | None]:
    """Return the values of a header over all requests that came."""
    return {request.headers.get(header) for request in server.requests}


async def test_every_request_has_the_headers_of_the_files(tmp_path: Path) -> None:
    """The handshake, too: a server that wants a token wants it from the first request on."""
    token = written(tmp_path / "token", f"Bearer {CANARY}\n")
    agent = written(tmp_path / "agent", "mine/1")
    async with web() as server:
        files = {"Authorization": token, "User-Agent": agent}
        address = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp", header_files=files)
        assert await prepared(address, tmp_path) is None
        assert shown(server, "authorization") == {f"Bearer {CANARY}"}
        assert shown(server, "user-agent") == {"mine/1"}


async def test_an_address_may_stand_in_a_file(tmp_path: Path) -> None:
    """One newline behind it, as editors leave it, is no part of it."""
    async with web() as server:
        file = written(tmp_path / "url", f"http://127.0.0.1:{server.port}/mcp?key={CANARY}\n")
        assert await prepared(HttpServer(url=file), tmp_path) is None
        assert server.requests


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"http://{CANARY}:x", "holds no URL"),
        (f"ftp://{CANARY}", "must hold a URL"),
        (f"http://u:{CANARY}@h", "must hold a URL"),
        ("", "must hold text"),
    ],
)
async def test_a_file_without_an_address_keeps_calls_from_being_sent(
    tmp_path: Path, content: str, reason: str
) -> None:
    """The refusal names the key and the file, and quotes nothing of it."""
    refused = await prepared(HttpServer(url=written(tmp_path / "url", content)), tmp_path)
    assert refused is not None
    assert refused.reason == "connect_failed"
    assert f"url_file: {tmp_path / 'url'} {reason}" in refused.message
    assert CANARY not in refused.message


@pytest.mark.parametrize("value", [f"{CANARY}\r\nX: y", f"{CANARY}é"])
async def test_a_file_without_a_headers_value_keeps_calls_from_being_sent(tmp_path: Path, value: str) -> None:
    """No value can become another header; the refusal does not quote it."""
    files = {"X-Token": written(tmp_path / "token", value)}
    refused = await prepared(HttpServer(url="http://127.0.0.1:9/mcp", header_files=files), tmp_path)
    assert refused is not None
    assert "header_files.X-Token: " in refused.message
    assert CANARY not in refused.message


async def test_files_are_read_again_for_the_next_connection(tmp_path: Path) -> None:
    """A rotated token is picked up without a restart of the daemon."""
    token = written(tmp_path / "token", "old")
    async with web() as server:
        address = HttpServer(url=f"http://127.0.0.1:{server.port}/mcp", header_files={"X-Token": token})
        assert await prepared(address, tmp_path) is None
        token.write_text("new")
        assert await prepared(address, tmp_path) is None
        assert shown(server, "x-token") == {"old", "new"}
