"""What the import writes: whole, private, and never over something by accident."""

import os
import stat
from pathlib import Path

import pytest

from driver.importing.errors import SourceUnreadable, TargetExists
from driver.importing.files import (
    SOURCE_BYTES_MAX,
    read_source,
    refuse_existing,
    secrets_written,
    write_private,
)


def mode(path: Path) -> int:
    """Return the permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_private(tmp_path: Path) -> None:
    """Whatever the umask would allow; nothing else is left in the folder."""
    before = os.umask(0)
    try:
        write_private(tmp_path / "new" / "file", "text", force=False)
        with secrets_written(tmp_path / "secrets", {"a": "x", "b": "y\n"}, force=False):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "file") == mode(tmp_path / "secrets" / "a") == 0o600
    assert mode(tmp_path / "secrets") == 0o700
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "secrets" / "b").read_text() == "y\n\n"


def test_nothing_is_replaced_without_a_word(tmp_path: Path) -> None:
    """Nor is a link followed, which may lead anywhere."""
    file = tmp_path / "file"
    file.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for path in (file, link):
        with pytest.raises(TargetExists, match="exists already, and nothing was written"):
            write_private(path, "new", force=False)
        with pytest.raises(TargetExists):
            refuse_existing([tmp_path / "other", path])
    assert file.read_text() == "old"
    assert not (tmp_path / "elsewhere").exists()
    write_private(file, "new", force=True)
    assert (file.read_text(), mode(file)) == ("new", 0o600)


class Stopped(Exception):
    """The body did not succeed."""


def stop(expected: bool) -> None:
    """Raise, where all is as expected until then."""
    assert expected
    raise Stopped


def test_secrets_do_not_stay_behind_where_nothing_needs_them(tmp_path: Path) -> None:
    """What was there before stays."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(Stopped), secrets_written(folder, {"a": "x", "mine": "new"}, force=True):
        stop({path.name for path in folder.iterdir()} == {"a", "mine"})
    assert {path.name for path in folder.iterdir()} == {"mine"}
    with pytest.raises(Stopped), secrets_written(tmp_path / "new", {"a": "x"}, force=False):
        stop((tmp_path / "new" / "a").exists())
    assert not (tmp_path / "new").exists()


def test_a_source_that_is_no_text_says_what_it_is(tmp_path: Path) -> None:
    """In one line, with what to do."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe{\0}\0")
    large = tmp_path / "large"
    large.write_bytes(b" " * (SOURCE_BYTES_MAX + 1))
    for path, said in (
        (tmp_path / "none", "there is no such file"),
        (tmp_path, "is a folder"),
        (binary, "is not UTF-8 text"),
        (large, "is larger than"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(SourceUnreadable, match=said):
            read_source(path)
