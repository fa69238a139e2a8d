"""The recording in docs/gateway.md: it can be made anew, and shows what the page promises."""

import html
import re
import tempfile
from pathlib import Path
from typing import Final

import pytest

from tests.recording import HOME, SVG, TOKEN, record

SHOWN: Final = (
    f'"MAIL_TOKEN": "{TOKEN}"',
    "$ effectd init --from .mcp.json",
    "1 secret in effectd.secrets/ (0700)",
    'env_files = { MAIL_TOKEN = "effectd.secrets/mail.MAIL_TOKEN" }',
    'identical = "once-per-run"',
    "$ python agent.py",
    "told: sent to zoe@example.com",
    "told: refused: nothing was executed. An equal call of mail/send_mail was made before in this run",
    "state=succeeded",
)
"""What a reader sees, in this order."""


def text(picture: str) -> str:
    """Return what is written in a picture, line by line."""
    rows: dict[float, dict[float, str]] = {}
    for x, y, part in re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        rows.setdefault(float(y), {})[float(x)] = html.unescape(part).replace("\xa0", " ")
    return "\n".join("".join(row[x] for x in sorted(row)) for _, row in sorted(rows.items()))


def check(picture: str) -> None:
    """Assert that a picture shows the story, the token once, and nothing of the machine it was made on."""
    written = text(picture)
    at = 0
    for line in SHOWN:
        assert line in written[at:], written
        at = written.index(line, at)
    assert written.count(TOKEN) == 1
    assert written.count("zoe@example.com: Invoice 17") == 1
    assert "http://www.w3.org/2000/svg" in picture
    assert "url(http" not in picture
    assert "/tmp" not in picture
    assert f"{HOME}/bin/effectd" in written


def test_the_picture_on_the_page_shows_the_story() -> None:
    """As it was recorded last."""
    check(SVG.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_first_five_minutes_can_be_recorded_anew() -> None:
    """The script still runs, and the commands still say it."""
    with tempfile.TemporaryDirectory(prefix="effectd-") as home:
        check(record(Path(home)))
