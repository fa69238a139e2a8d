"""What a caller on a local socket hears is held against the documentation."""

import pytest

from tests.faults.balance import Balance
from tests.faults.hostile.callers import _wrong

PROBLEM = b"Content-Type: application/problem+json\r\n"


def answer(status: int, body: bytes = b"", headers: bytes = b"") -> bytes:
    """Return what a server would say."""
    size = b"Content-Length: %d\r\n" % len(body)
    return b"HTTP/1.1 %d Word\r\n" % status + headers + size + b"\r\n" + body


def problem(status: int, code: str) -> bytes:
    """Return a problem, whose body names this status."""
    return f'{{"status": {status}, "code": "{code}"}}'.encode()


GOOD = answer(200, b"{}") + answer(404, problem(404, "history_changed"), PROBLEM)
ODD = {
    "no HTTP": b"hello",
    "a status of a crash": answer(500),
    "a page": answer(400, b"<html>"),
    "a cut problem": answer(400, b'{"status": 400', PROBLEM),
    "an accident": answer(500, problem(500, "internal"), PROBLEM),
    "a code of nobody": answer(400, problem(400, "made_up_here"), PROBLEM),
    "two statuses": answer(400, problem(404, "history_changed"), PROBLEM),
    "an odd one behind a good one": GOOD + answer(503),
}


def test_answers_that_the_documentation_names_are_right() -> None:
    """One behind the other, and the end of the connection without any."""
    assert _wrong(Balance(), GOOD) is None
    assert _wrong(Balance(), b"") is None


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_any_other_answer_is_wrong(odd: bytes) -> None:
    """Each kind that the lane looks for would be seen (negative control)."""
    assert _wrong(Balance(), odd) is not None
