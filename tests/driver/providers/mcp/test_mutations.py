"""Thousands of bent messages: no crash, no hang, and no success that the server did not report.

Over stdio each call is answered by a bent line and then by an honest one, so that none has to wait for its
deadline. The seed is fixed: what fails once fails again.
"""

from pathlib import Path
from random import Random
from typing import Final

import anyio
import pytest
from anyio.abc import SocketStream

from driver.core.attempts import Answered, Report, Silence
from driver.providers.mcp.settings import HttpServer
from store.records import JsonObject, OperationId
from tests.driver.providers.mcp.mutations import LINES, SENTINEL, bent, is_the_same, success_of
from tests.driver.providers.mcp.stage import Stage, staged, stdio
from tests.driver.providers.mcp.web import LEGACY, STREAM, Request, Web, event, http, web

pytestmark = [pytest.mark.anyio, pytest.mark.lane]

SEED: Final = 20261129
LINES_BENT: Final = 2_000
SERVERS: Final = 4
RESPONSES_BENT: Final = 400
PATIENCE_S: Final = 60.0
HONEST: Final[JsonObject] = {"content": [{"type": "text", "text": "honest"}]}
HONEST_LINE: Final = b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"honest"}]}}'


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was given up is started again at once: what is tested here is not that pause."""

    def at_once(_failures: int, _chance: float) -> float:
        return 0.0

    monkeypatch.setattr("driver.providers.mcp.provider.delay_s", at_once)


def made_up(report: Report, expected: JsonObject | None) -> bool:
    """Whether a report is a success that the server did not report."""
    if not isinstance(report, Answered) or report.is_error:
        return False
    return expected is None or not is_the_same(report.result, expected)


def hung(report: Report) -> bool:
    """Whether a report says that nothing came in time, though something did."""
    return isinstance(report, Silence) and report.cause == "deadline"


async def test_bent_lines_over_stdio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call ends as the first message that answers it says, or is unknown; late answers are true, too."""
    broken: list[str] = []

    async def one(number: int) -> None:
        chance, ledger = Random(SEED + number), tmp_path / f"ledger-{number}"
        async with staged(stdio("hostile_mcp.py", ledger), ledger, late_result_s=2) as stage:
            expected: dict[OperationId, JsonObject | None] = {}
            for _ in range(LINES_BENT // SERVERS):
                line = bent(chance)
                arguments: JsonObject = {"mode": "bytes", "bytes": line.decode("latin-1")}
                call = stage.call("act", arguments, timeout_s=PATIENCE_S)
                expected[call.operation_id] = success_of([*line.split(b"\n"), HONEST_LINE])
                report = await stage.dispatch(call)
                if made_up(report, expected[call.operation_id]) or hung(report):
                    broken.append(f"{line!r}: {report}, not {expected[call.operation_id]}")
            assert isinstance(await stage.act("honest"), Answered)
            broken.extend(
                f"late: {report}" for name, _, report in stage.late if made_up(report, expected[name])
            )

    async with anyio.create_task_group() as tasks:
        for number in range(SERVERS):
            tasks.start_soon(one, number)
    assert not broken, "\n".join(broken)
    assert "connection_failed" not in capsys.readouterr().err


async def over_http(tmp_path: Path, responses: list[tuple[bytes, JsonObject | None]]) -> list[str]:
    """Return what is made up of these responses, or hangs; `ID` in them is the call's."""
    broken: list[str] = []
    pending = iter(responses)

    async def answer(_server: Web, stream: SocketStream, request: Request) -> None:
        data, _ = next(pending)
        await stream.send(data.replace(b"ID", str(request.body["id"]).encode()))
        await stream.aclose()

    async with web(era=LEGACY, answer=answer) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        async with staged(HttpServer(url=url), tmp_path / "ledger") as stage:
            for data, expected in responses:
                report = await stage.act("x", timeout_s=PATIENCE_S)
                if made_up(report, expected) or hung(report):
                    broken.append(f"{data!r}: {report}, not {expected}")
            assert stage.late == []
            await answers_again(stage, server)
    return broken


async def answers_again(stage: Stage, server: Web) -> None:
    """The connection still works."""

    async def honest(_server: Web, stream: SocketStream, request: Request) -> None:
        await stream.send(http(200, HONEST_LINE.replace(b"ID", str(request.body["id"]).encode())))

    server.answer = honest
    assert await stage.act("x") == Answered(result=HONEST)


async def test_bent_bodies_over_http(tmp_path: Path) -> None:
    """A body is the answer as a whole, or nothing is."""
    chance = Random(SEED)
    bodies = [bent(chance).replace(b"ID", b"IDENT") for _ in range(RESPONSES_BENT)]
    responses = [(sized(body), success_of([body.replace(b"IDENT", b"ID")])) for body in bodies]
    broken = await over_http(tmp_path, responses)
    assert not broken, "\n".join(broken)


def sized(body: bytes) -> bytes:
    """Return a response whose length is right once `IDENT` has become an id of four digits."""
    return (
        http(200, body.replace(b"IDENT", b"0000")).partition(b"\r\n\r\n")[0]
        + b"\r\n\r\n"
        + body.replace(b"IDENT", b"ID")
    )


async def test_bent_events_over_http(tmp_path: Path) -> None:
    """In a stream the first message that answers the call does, whatever else is in it."""
    chance = Random(SEED + 1)
    responses: list[tuple[bytes, JsonObject | None]] = []
    for _ in range(RESPONSES_BENT):
        pieces = [bent(chance).replace(b"\n", b" ").replace(b"\r", b" "), HONEST_LINE]
        stream = STREAM + b"".join(event(piece) for piece in pieces)
        responses.append((stream, next((found for piece in pieces if (found := success_of([piece]))), None)))
    broken = await over_http(tmp_path, responses)
    assert not broken, "\n".join(broken)


async def test_bent_heads_over_http(tmp_path: Path) -> None:
    """Whatever stands before the body: the answer is the one that was sent, or none."""
    chance = Random(SEED + 2)
    responses: list[tuple[bytes, JsonObject | None]] = []
    for _ in range(RESPONSES_BENT):
        head, _, _ = http(200, LINES[0].replace(b"ID", b"0000")).partition(b"\r\n\r\n")
        at = chance.randrange(len(head))
        bent_head = head[:at] + chance.randbytes(chance.randint(0, 3)) + head[at + chance.randint(0, 3) :]
        responses.append((bent_head + b"\r\n\r\n" + LINES[0], success_of([LINES[0]])))
    broken = await over_http(tmp_path, responses)
    assert not broken, "\n".join(broken)


def test_the_oracle_knows_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    """Control: it takes what is one, and nothing else; the bending leaves enough of both."""
    assert success_of([HONEST_LINE]) == HONEST
    assert success_of([b"?", HONEST_LINE]) == HONEST
    assert success_of([LINES[7], HONEST_LINE]) is None
    assert success_of([HONEST_LINE.replace(b"ID", b"1")]) is None
    assert str(SENTINEL).encode() not in b"".join(LINES)
    chance = Random(SEED)
    successes = sum(success_of(bent(chance).split(b"\n")) is not None for _ in range(LINES_BENT))
    assert LINES_BENT // 50 < successes < LINES_BENT // 2
