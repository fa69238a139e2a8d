"""The model of a disk: what is certain, what may be, and what a failed fsync takes away."""

from collections.abc import Sequence

from tests.faults.platter import WHOLE, Platter
from tests.faults.recording import Step


def platter(*steps: Step, base: dict[str, bytes] | None = None) -> Platter:
    """A disk after these steps, from a file `state/f` of six sevens."""
    made = Platter({"state/f": b"777777"} if base is None else base)
    for index, step in enumerate(steps):
        made.apply(index, step)
    return made


def write(data: bytes, at: int = 0) -> Step:
    """A write to the file."""
    return Step(kind="write", path="state/f", at=at, data=data)


def sync(began: int, *, failed: bool = False) -> Step:
    """An fsync of the file, which covers what was written before step `began`."""
    return Step(kind="sync", path="state/f", began=began, failed=failed)


def contents(disk: Platter, kept: Sequence[int] = ()) -> dict[str, bytes]:
    """The files, if these steps have reached the disk."""
    return {path: bytes(data) for path, data in disk.build(dict.fromkeys(kept, WHOLE)).files.items()}


def test_what_was_not_flushed_may_be_missing() -> None:
    """Any part of it may have come; what came later lies over what came before."""
    disk = platter(write(b"ab"), write(b"cd", 1))
    assert [item.index for item in disk.undecided()] == [0, 1]
    assert contents(disk) == {"state/f": b"777777"}
    assert contents(disk, [1]) == {"state/f": b"7cd777"}
    assert contents(disk, [0, 1]) == {"state/f": b"acd777"}


def test_an_fsync_makes_certain_what_was_written_before_it_began() -> None:
    """And nothing else."""
    disk = platter(write(b"a"), write(b"b", 1), sync(1))
    assert contents(disk) == {"state/f": b"a77777"}
    assert [item.index for item in disk.undecided()] == [1]


def test_after_a_failed_fsync_no_later_one_brings_its_pages() -> None:
    """They are called clean; they may have come all the same, under what was written after them."""
    disk = platter(write(b"ab"), sync(1, failed=True), write(b"c", 1), sync(3))
    assert contents(disk) == {"state/f": b"7c7777"}
    assert contents(disk, [0]) == {"state/f": b"ac7777"}
    assert [item.clean for item in disk.undecided()] == [True]


def test_a_write_is_torn_at_sectors() -> None:
    """Each sector that it touches is there, or is not."""
    disk = platter(write(b"x" * 1_030, 500), base={"state/f": b"." * 2_048})
    (item,) = disk.undecided()
    assert item.sectors == 3
    torn = bytes(disk.build({0: 0b101}).files["state/f"])
    assert torn == b"." * 500 + b"x" * 12 + b"." * 512 + b"x" * 506 + b"." * 518


def test_a_name_is_certain_once_its_folder_was_synced() -> None:
    """A rename before that leaves either name, and never both, nor none."""
    renamed = Step(kind="rename", path="state/f", other="state/g")
    disk = platter(renamed)
    assert contents(disk) == {"state/f": b"777777"}
    assert contents(disk, [0]) == {"state/g": b"777777"}
    assert contents(platter(renamed, Step(kind="sync", path="state", began=1))) == {"state/g": b"777777"}
