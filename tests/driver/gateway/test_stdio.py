"""The agent's end of the relay, whatever its standard input and output are."""

import subprocess
from pathlib import Path

import pytest

from tests.system.agents import EFFECTD


@pytest.mark.parametrize("name", ["/dev/null", "empty"])
def test_a_relay_ends_where_nobody_will_ever_say_anything(tmp_path: Path, name: str) -> None:
    """Somebody tries it by hand, or a service manager starts it: epoll takes neither of the two."""
    config = tmp_path / "effectd.toml"
    config.write_text('[driver]\nruntime_dir = "run"\n\n[gateway]\n')
    (tmp_path / "empty").touch()
    with (tmp_path / name).open("rb") as nothing, (tmp_path / "said").open("wb") as said:
        done = subprocess.run(
            [EFFECTD, "mcp", "--config", str(config)],
            stdin=nothing,
            stdout=said,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "said").read_bytes() == b""
