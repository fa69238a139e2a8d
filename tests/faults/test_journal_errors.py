"""Single file calls that failed, as the lane `errors` has found them."""

import errno
from pathlib import Path

import pytest

from tests.faults import notifier
from tests.faults.journal_errors import WENT_ON, Fault, Tally, Trap, life, noticed
from tests.faults.notifier import Call
from tests.store.conftest import FILES

pytestmark = pytest.mark.skipif(
    notifier.lacking() is not None, reason="the kernel cannot report system calls"
)


class _AtPath(Trap):
    """Answers with an error at the n-th call of its kind that names one file."""

    def __init__(self, call: str, path: str, number: int) -> None:
        super().__init__(Fault(call=call, number=number, error=errno.EIO, for_ever=False))
        self._path = path

    def __call__(self, call: Call) -> int:
        return super().__call__(call) if call.path == self._path else 0


def test_a_wal_that_the_creation_could_not_remove_is_not_left_behind(tmp_path: Path) -> None:
    """SQLite says nothing when it cannot; so it is looked for once more."""
    (tmp_path / "backups").mkdir()
    trap = _AtPath("unlink", "state/journal.db.new-wal", 2)  # the first one looks for leftovers
    ended = life(tmp_path, "plain", 1, trap)
    assert len(trap.fired) == 1
    assert ended.code == 0, ended.said
    assert {path.name for path in (tmp_path / "state").iterdir()} == FILES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"life 7, EIO at fdatasync 1 once: {WENT_ON}; refused", True),
        ("life 7, EIO at fdatasync 1 once: I5: event 10 was told, and the journal ends at 8", True),
        ("life 7, EIO at fdatasync 1 once: exit code 1: Traceback", False),
    ],
)
def test_that_nothing_stops_is_noticed_by_what_comes_of_it(text: str, expected: bool) -> None:
    """A life that falls over, as one does whose weakness is no more to be had, has shown nothing."""
    assert noticed(Tally(broken=[text])) is expected
