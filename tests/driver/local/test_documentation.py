"""docs/local-api.md says what is served."""

import re
from pathlib import Path

from driver.local.app import ENDPOINTS
from driver.local.errors import Code
from driver.local.settings import LocalLimits
from tests.driver.local.test_reads import ALONE, LISTED, STATUS

TEXT = (Path(__file__).parents[3] / "docs" / "local-api.md").read_text(encoding="utf-8")


def served() -> set[str]:
    """Return every path with its method."""
    return {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS}


def test_every_path_is_documented_and_nothing_else() -> None:
    """What stands there can be asked for."""
    assert set(re.findall(r"^\| `((?:GET|POST) [^` ]+)` \|", TEXT, re.MULTILINE)) == served()


def test_every_code_is_documented() -> None:
    """A program may compare them, so each is promised."""
    assert all(f"`{code}`" in TEXT for code in Code)


def test_every_member_is_documented() -> None:
    """Word by word."""
    assert all(f"`{member}`" in TEXT for member in (*LISTED, *ALONE, *STATUS))


def test_the_limits_are_those_of_the_code() -> None:
    """Numbers in prose go stale unless somebody looks."""
    limits = LocalLimits()
    assert f"{limits.connections_max} connections" in TEXT
    assert f"{limits.streams_max} streams" in TEXT
    assert f"{limits.requests_per_s:g} requests a second in the long run" in TEXT
    assert f"{limits.requests_burst:,} at once" in TEXT
    assert (
        f"heads of {limits.header_bytes_max // 1024} KiB, bodies of {limits.body_bytes_max // 1024} KiB"
        in TEXT
    )
    assert f"{limits.request_s:g} s for a head" in TEXT
    assert f"{limits.stall_s:g} s for a client" in TEXT
    assert f"its {limits.batch_events_max:,} events" in TEXT
