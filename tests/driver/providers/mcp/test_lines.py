"""Lines out of a byte stream."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.providers.mcp.lines import LineSplitter, LineTooLong

CUTS = st.lists(st.integers(0, 400), max_size=20)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return `data` in pieces."""
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def lines_of(splitter: LineSplitter, pieces: list[bytes]) -> list[bytes]:
    """Return all lines that come out of `pieces`."""
    return [line for piece in pieces for line in splitter.feed(piece)]


@given(lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" "))), cuts=CUTS)
def test_lines_come_out_whole_however_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    """Chunks have no meaning; lines do."""
    splitter = LineSplitter(40)
    data = b"".join(line + b"\n" for line in lines)
    assert lines_of(splitter, chunks(data, cuts)) == lines


@given(size=st.integers(1, 200), cuts=CUTS, ended=st.booleans())
def test_no_line_longer_than_the_cap_comes_out(size: int, cuts: list[int], *, ended: bool) -> None:
    """The cap is exact, and holds for a line that never ends as well."""
    splitter = LineSplitter(100)
    data = b"x" * size + (b"\n" if ended else b"")
    if size > 100:
        with pytest.raises(LineTooLong, match="more than 100 bytes"):
            lines_of(splitter, chunks(data, cuts))
    else:
        assert lines_of(splitter, chunks(data, cuts)) == ([b"x" * size] if ended else [])
