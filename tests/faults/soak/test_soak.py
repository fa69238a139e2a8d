"""What grows is seen, and what does not grow is not."""

import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.faults.soak.gauge import Sample, measure
from tests.faults.soak.trend import SAMPLES_MIN, SLACKS, growing, thirds

PARENT = "import subprocess; child = subprocess.Popen(['cat']); print('up', flush=True); child.wait()"
"""One with one process below it, until its standard input ends."""


def looks(**growth: float) -> list[Sample]:
    """Return 60 looks at figures that begin at 100 and grow by so much each time."""
    return [
        Sample(**{name: round(100 + number * more) for name, more in growth.items()}) for number in range(60)
    ]


@pytest.mark.parametrize("name", sorted(SLACKS))
def test_what_does_not_grow_is_flat(name: str) -> None:
    """Neither is a figure that shrinks, nor one odd look."""
    assert growing(looks(**{name: 0})) == []
    assert growing(looks(**{name: -1})) == []
    odd = looks(**{name: 0})
    odd[50] = Sample(**{name: 10**9})
    assert growing(odd) == []


@pytest.mark.parametrize("name", sorted(SLACKS))
def test_what_grows_with_each_round_is_not(name: str) -> None:
    """Ten descriptors a round, or half a megabyte, are seen within a minute."""
    (found,) = growing(looks(**{name: 10 if not name.endswith("_kb") else 512}))
    assert found.startswith(f"{name} grew from")


def test_too_few_looks_say_nothing() -> None:
    """The lane then has not reached what it is meant to."""
    assert thirds(looks(descriptors=10)[: SAMPLES_MIN - 1]) == {}


def test_a_process_is_measured(tmp_path: Path) -> None:
    """Its own figures, how many are below it, and those of two folders."""
    (tmp_path / "state" / "spool" / "op-1").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "state" / "journal.db").write_bytes(b"x" * 4_096)
    (tmp_path / "state" / "journal.db-wal").write_bytes(b"x" * 2_048)
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=PIPE, stdout=PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        found = measure(parent.pid, tmp_path / "state", tmp_path / "run")
        parent.communicate()  # closes what both of them read
    assert (found.journal_kb, found.wal_kb, found.records, found.files) == (4, 2, 1, 3)
    assert found.descriptors > 2
    assert found.threads >= 1
    assert found.memory_kb > 1_000
    assert found.processes == 1
