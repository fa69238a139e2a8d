"""One connection: heads and bodies that are too long, and clients that say no more."""

import json
from pathlib import Path

import anyio
import pytest

from tests.driver.local.test_server import GET_STATUS, drained, raw
from tests.driver.local.world import served

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "request_line", [b"GET /v1/status?" + b"x" * 20_000, b"GET /v1/" + b"x" * 20_000, b"GET /v1/status"]
)
async def test_a_head_that_comes_in_one_piece_is_bounded_as_any(tmp_path: Path, request_line: bytes) -> None:
    """h11 bounds what is not whole yet, and this is whole at once."""
    padding = b"" if len(request_line) > 20_000 else b"y: " + b"z" * 20_000 + b"\r\n"
    async with served(tmp_path) as world, raw(world) as stream:
        await stream.send(request_line + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + padding + b"\r\n")
        head, _, body = (await drained(stream)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["code"] == "invalid_request"


async def test_a_body_that_says_that_it_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    """Before it is sent, which whoever asks whether it may go on need not do."""
    async with served(tmp_path) as world, raw(world, "operator.sock") as stream:
        await stream.send(
            b"POST /v1/verify HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"connection: close\r\ncontent-length: 65537\r\n\r\n"
        )
        with anyio.fail_after(5):
            found = await stream.receive()
    assert found.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("requests", [1, 3])
async def test_a_client_that_says_no_more_hears_its_answers(tmp_path: Path, requests: int) -> None:
    """As with `nc -N` and socat, which end what they send when their input ends; pipelined requests, too."""
    async with served(tmp_path) as world, raw(world) as stream:
        await stream.send(GET_STATUS * requests)
        await stream.send_eof()
        found = await drained(stream)
    assert found.count(b"HTTP/1.1 200 ") == requests
    assert found.count(b'"driver_id"') == requests


async def test_half_a_request_of_a_client_that_says_no_more_is_let_go(tmp_path: Path) -> None:
    """Nothing comes of it, and nobody waits for the rest."""
    async with served(tmp_path, request_s=600.0) as world, raw(world, "operator.sock") as stream:
        await stream.send(b"POST /v1/drain HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
        await stream.send_eof()
        assert await drained(stream) == b""
    assert world.drained == []


async def test_a_follower_that_says_no_more_is_told_what_comes_until_it_is_gone(tmp_path: Path) -> None:
    """Its stream goes on, and its place is free soon after it has hung up, though nothing happens."""
    async with served(tmp_path, streams_max=1, hangup_s=0.05) as world:
        async with raw(world) as stream:
            await stream.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
            await stream.send_eof()
            found = await stream.receive()
            await world.accept("cmd-1")
            with anyio.fail_after(30):
                while b"cmd-1" not in found:
                    found += await stream.receive()
        with anyio.fail_after(30):
            while True:
                async with raw(world) as stream:
                    await stream.send(b"GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n")
                    if (await stream.receive()).startswith(b"HTTP/1.1 200"):
                        return
