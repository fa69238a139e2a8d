"""An adapter that does not keep to its three verbs is called that, and is not judged."""

import sys
from pathlib import Path

import pytest

from driver.conformance.adapter import subject
from driver.conformance.errors import AdapterEnded, AdapterGarbled, AdapterSilent

pytestmark = pytest.mark.anyio


async def start(program: str, folder: Path) -> None:
    """Start an adapter that is the Python text `program`."""
    async with subject((sys.executable, "-c", program)) as alive:
        await alive.start(folder, folder)


async def test_an_adapter_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    """The end of its standard error stands in the error."""
    with pytest.raises(AdapterEnded, match="the reason why"):
        await start("import sys; sys.stdin.readline(); sys.exit('the reason why')", tmp_path)


@pytest.mark.parametrize("said", ["no json", "[1]", '{"error": "it broke"}'])
async def test_what_is_no_answer_is_garbled(tmp_path: Path, said: str) -> None:
    """No JSON, no object, and an admitted failure are none of the answers that a verb has."""
    with pytest.raises(AdapterGarbled):
        await start(
            f"import sys; sys.stdin.readline(); print({said!r}, flush=True); sys.stdin.read()", tmp_path
        )


async def test_silence_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that never answers does not hold up the battery for ever."""
    monkeypatch.setattr("driver.conformance.adapter.START_S", 0.2)
    with pytest.raises(AdapterSilent):
        await start("import sys; sys.stdin.read()", tmp_path)
