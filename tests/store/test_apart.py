"""What the process that compares a journal says of it."""

import io

import pytest

from store.apart import Apart
from store.findings import Finding, Progress

PROGRESS = b'{"type": "progress", "check": "projections", "done": 1, "total": 2}\n'
FINDING = b'{"type": "finding", "check": "projections", "subject": "runs 1", "problem": "it is missing"}\n'
RESULT = b'{"type": "result"}\n'


def test_what_it_finds_is_told_once_it_is_done() -> None:
    """Progress goes to whoever waits for it; findings come with the result."""
    told: list[Progress] = []
    found = Apart(io.BytesIO(PROGRESS + FINDING + RESULT)).wait(told.append)
    assert found == (Finding(check="projections", subject="runs 1", problem="it is missing"),)
    assert told == [Progress(check="projections", done=1, total=2)]


@pytest.mark.parametrize("said", [b"", PROGRESS, FINDING, FINDING[:20], FINDING + RESULT[:-1]])
def test_a_process_that_ends_early_has_found_nothing_out(said: bytes) -> None:
    """Wherever it is killed, in the middle of a line, too, it has no result: the caller looks itself."""
    assert Apart(io.BytesIO(said)).wait(lambda _: None) is None
