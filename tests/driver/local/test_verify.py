"""`POST /v1/verify`: the live journal, looked at while it works."""

import json
from pathlib import Path

import anyio
import httpx2
import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs

from tests.driver.local.world import World, served

pytestmark = pytest.mark.anyio


def lines_of(answer: httpx2.Response) -> list[dict[str, JsonValue]]:
    """Return the lines of a stream."""
    return [json.loads(line) for line in answer.text.splitlines()]


async def verify(world: World, content: bytes = b"") -> httpx2.Response:
    """Ask for a verification."""
    async with world.client("operator.sock") as client:
        return await client.post("/v1/verify", content=content)


async def test_a_sound_journal_is_ok(tmp_path: Path) -> None:
    """Progress, then one result; the log says who asked."""
    async with served(tmp_path) as world:
        await world.chatter(1_000)
        await world.lose("cmd-1")
        with capture_logs() as logs:
            *progress, result = lines_of(await verify(world))
    assert result == {"type": "result", "ok": True, "findings": 0}
    assert progress
    assert all(line["type"] == "progress" for line in progress)
    asked = [entry for entry in logs if entry["event"] == "verify_requested"]
    assert [entry["actor"].startswith("operator:") for entry in asked] == [True]


async def test_commits_go_on_meanwhile(tmp_path: Path) -> None:
    """Nobody is held up, and what is new is no finding."""
    async with served(tmp_path) as world, anyio.create_task_group() as tasks:
        await world.chatter(2_000)

        async def work() -> None:
            for number in range(30):
                await world.lose(f"cmd-{number}")

        tasks.start_soon(work)
        assert lines_of(await verify(world))[-1]["ok"] is True


async def test_what_is_wrong_is_a_line_each(tmp_path: Path) -> None:
    """A flipped byte in an event is found where it is."""
    async with served(tmp_path) as world:
        await world.chatter(3)
        await world.journal.transact(
            lambda tx: tx.ledger.connection.execute(
                "UPDATE events SET body = CAST(replace(body, '/test', '/tesT') AS BLOB) WHERE seq = 2"
            )
        )
        found = lines_of(await verify(world))
    assert found[-1]["ok"] is False
    assert {str(line["subject"]) for line in found if line["type"] == "finding"} == {"event 2"}


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{}", 200, None),
        (b"[]", 422, "invalid_body"),
        (b"{", 422, "invalid_body"),
        (b'{"deeply":true}', 422, "invalid_body"),
        (b'{"a":1,"a":2}', 422, "invalid_body"),
        (b"\xff", 422, "invalid_body"),
        (b"x" * 65_537, 413, "body_too_large"),
    ],
)
async def test_a_body_is_checked_before_anything_is_done(
    tmp_path: Path, content: bytes, status: int, code: str | None
) -> None:
    """Strict JSON, and nothing that is not understood."""
    async with served(tmp_path) as world:
        answer = await verify(world, content)
    assert answer.status_code == status
    assert code is None or answer.json()["code"] == code


async def test_a_body_that_does_not_come_runs_out_of_time(tmp_path: Path) -> None:
    """A handler does not wait for ever either."""
    async with (
        served(tmp_path, request_s=2.0) as world,
        await anyio.connect_unix(world.runtime_dir / "operator.sock") as stream,
    ):
        await stream.send(b"POST /v1/verify HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{")
        with anyio.fail_after(30):
            assert b'"request_timeout"' in await stream.receive()


async def test_one_at_a_time(tmp_path: Path) -> None:
    """The second waits for its turn, and has it."""
    results: list[JsonValue] = []
    async with served(tmp_path) as world, anyio.create_task_group() as tasks:
        await world.chatter(1_000)

        async def ask() -> None:
            results.append(lines_of(await verify(world))[-1]["ok"])

        for _ in range(3):
            tasks.start_soon(ask)
    assert results == [True, True, True]
