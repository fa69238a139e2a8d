"""Hostile words to the two parsers that stand at the edge, in this process. Part of `hostile`.

What the product takes for a frame, or for the answer to a call, is exactly what an independent reading of the
documentation takes for one; and nothing raises.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from driver.core.attempts import Answered
from driver.core.codec import parse_from_plane
from driver.core.frames import BadFrame, InvalidCommand
from driver.providers.mcp.jsonrpc import Response, read_message, report_of
from store.records import JsonObject
from tests.driver.providers.mcp.mutations import SENTINEL, bent, is_the_same, success_of
from tests.faults.balance import Balance
from tests.faults.hostile import judge
from tests.faults.hostile.words import word
from tests.faults.lane import BROKEN_MAX

SHOWN: Final = 300


def frames(balance: Balance, seed: int, numbers: range, over: Callable[[], bool]) -> None:
    """Give words to the parser of frames."""
    for number in numbers:
        if over() or len(balance.broken) >= BROKEN_MAX:
            return
        if (wrong := frame(balance, seed, number)) is not None:
            text = word(seed, number)
            balance.broken.append(f"parser, seed {seed}, word {number}: {wrong}: {text[:SHOWN]!r}")
        balance.tried += 1
        balance.fired["words to the parser of frames"] += 1


def frame(balance: Balance, seed: int, number: int) -> str | None:
    """Return what is wrong with what the parser makes of one word."""
    text = word(seed, number)
    try:
        found = parse_from_plane(text)
    except Exception as error:  # noqa: BLE001 - it says that it never does
        return f"raised {error!r}"
    try:
        meant = judge.meaning(text)
    except judge.NoFrame as why:
        balance.reached["a word that is no frame"] += 1
        if isinstance(found, BadFrame):
            return None
        if isinstance(found, InvalidCommand):
            balance.reached["a command that is refused for good"] += 1
            return None if _owes_an_answer(text, found) else "an answer is owed to nobody"
        return f"taken for {type(found).__name__}, and is {why}"
    balance.reached["a word that is a frame"] += 1
    if isinstance(found, BadFrame | InvalidCommand):
        return f"not taken: {found.message}"
    return None if found.type == meant["type"] else f"taken for {found.type}"


def _owes_an_answer(text: str | bytes, found: InvalidCommand) -> bool:
    try:
        raw = judge.strict(text)
    except judge.NoFrame:
        return False
    return (raw["type"], raw["command_id"]) == ("command", found.command_id)


def lines(balance: Balance, seed: int, numbers: range, over: Callable[[], bool]) -> None:
    """Give a server's lines to the parser of MCP."""
    for number in numbers:
        if over() or len(balance.broken) >= BROKEN_MAX:
            return
        line = bent(Random(seed * 1_000_000_007 + number))
        if (wrong := _line(balance, line)) is not None:
            balance.broken.append(f"MCP, seed {seed}, line {number}: {wrong}: {line[:SHOWN]!r}")
        balance.tried += 1
        balance.fired["lines to the parser of MCP"] += 1


def _line(balance: Balance, line: bytes) -> str | None:
    """Return what is wrong with what is made of what a server says."""
    pieces = line.split(b"\n")
    try:
        result = _result([piece.replace(b"ID", str(SENTINEL).encode()) for piece in pieces])
    except Exception as error:  # noqa: BLE001 - it says that it never does
        return f"raised {error!r}"
    expected = success_of(pieces)
    balance.reached["a success that a server reported"] += result is not None
    if result is not None and (expected is None or not is_the_same(result, expected)):
        return f"taken for a success with {ascii(result)[:SHOWN]}"
    return None


def _result(pieces: list[bytes]) -> JsonObject | None:
    """The result of the first message that answers our call, where that is a success."""
    for piece in pieces:
        read = read_message(piece)
        if isinstance(read, Response) and read.request_id == SENTINEL:
            report = report_of(read.reply) if isinstance(read.reply, dict) else None
            return report.result if isinstance(report, Answered) and not report.is_error else None
    return None
