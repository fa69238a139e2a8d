"""The token file: whole or refused, whoever replaces it meanwhile, and never shown."""

import itertools
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from driver.link.errors import TokenUnusable
from driver.link.token import TOKEN_BYTES_MAX, read_token

pytestmark = pytest.mark.anyio

ONE: Final = "a" * 8_000
OTHER: Final = "b" * 12_000
READS: Final = 500


@contextmanager
def rotating(path: Path, replace: Callable[[Path, str], None]) -> Generator[None]:
    """Have the token replaced, again and again, while the block runs."""
    over = threading.Event()

    def rotate() -> None:
        for token in itertools.cycle((ONE, OTHER)):
            if over.is_set():
                return
            replace(path, token)

    writer = threading.Thread(target=rotate)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def atomically(path: Path, token: str) -> None:
    """As `mv` does, and a secret's mount: a new file under the old name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(token + "\n")
    fresh.replace(path)


def in_place(path: Path, token: str) -> None:
    """As `>` does: emptied, then written, in two pieces."""
    with path.open("w") as file:
        file.write(token[:100])
        file.flush()
        file.write(token[100:] + "\n")


async def test_a_token_that_is_replaced_atomically_is_read_whole(tmp_path: Path) -> None:
    """The old one or the new one, at each of many reads: never a part, a mixture, or nothing."""
    path = tmp_path / "token"
    path.write_text(ONE)
    with rotating(path, atomically):
        found = {(await read_token(path)).value for _ in range(READS)}
    assert found <= {ONE, OTHER}


async def test_a_token_that_is_overwritten_is_refused_or_harmless(tmp_path: Path) -> None:
    """Negative control: in place there are moments of emptiness, which is named, and of parts.

    A part is what the plane refuses, and the next connect reads the file again: see `test_dial`.
    """
    path = tmp_path / "token"
    path.write_text(ONE)
    found: set[str] = set()
    with rotating(path, in_place):
        for _ in range(READS):
            try:
                found.add((await read_token(path)).value)
            except TokenUnusable as refused:
                assert "is empty" in str(refused)  # noqa: PT017 - either may come
    assert all(value in ONE or value in OTHER for value in found)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"two words", "one word"),
        (b"first\nsecond", "one word"),
        (b"\xff\xfe", "one word"),
        (b"tok\x00en", "one word"),
        (b"x" * (TOKEN_BYTES_MAX + 1), "is longer"),
    ],
)
async def test_what_is_no_token_is_refused_without_being_shown(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    """The error names the file and what is wrong with it, and nothing of what stands in it."""
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(TokenUnusable, match=reason) as caught:
        await read_token(path)
    text = str(caught.value)
    assert str(path) in text
    assert not any(part in text for part in ("second", "two", "x" * 20))


async def test_a_token_hides_in_a_trace(tmp_path: Path) -> None:
    """Neither its text nor its representation shows it."""
    path = tmp_path / "token"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    token = await read_token(path)
    assert token.value == "hunter2"
    assert not token.readable_by_others
    assert "hunter2" not in f"{token} {token!r}"


async def test_the_mode_is_that_of_the_file_that_was_read(tmp_path: Path) -> None:
    """A link to a file that others may read is no better than the file."""
    path = tmp_path / "token"
    path.write_text("hunter2")
    os.chmod(path, 0o640)  # noqa: PTH101 - what is tested
    link = tmp_path / "link"
    link.symlink_to(path)
    assert (await read_token(link)).readable_by_others
