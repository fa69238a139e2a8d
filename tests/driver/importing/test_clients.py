"""The block for the client has the shape that its file has."""

import json
from pathlib import Path
from typing import get_args

import pytest

from driver.importing.clients import block
from driver.importing.shapes import Form
from tests.driver.importing.sources import planned

ARGV = ("/opt/effectd/bin/effectd", "mcp", "--config", '/home/mia/a "b"/effectd.toml', "--run", "work-1")


@pytest.mark.parametrize("form", get_args(Form))
def test_a_block_is_read_back_in_its_own_form_and_known_for_our_own(form: Form) -> None:
    """Whoever imports the client's file once more finds effectd in it, and passes it over."""
    name = "config.toml" if form == "mcp_servers" else "config.json"
    made = planned(block(form, ARGV), Path("/home/mia") / name)
    assert made.form == form
    assert [(server.source, server.fate) for server in made.servers] == [("effectd", "own")]


def test_a_block_starts_the_relay() -> None:
    """Its words come through as they are."""
    entry = json.loads(block("mcpServers", ARGV))["mcpServers"]["effectd"]
    assert (entry["command"], *entry["args"]) == ARGV
