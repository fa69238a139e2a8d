"""No file makes a traceback: it is imported, or refused by name, and no secret gets out of it."""

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from driver.config.load import parse
from driver.importing.dotenv import read_variables
from driver.importing.errors import ImportRefused
from tests.driver.importing.sources import CLIENTS, files, planned, rendered

TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "x",
        "https://h/mcp",
        "http://u:p@h",
        "https://[",
        "${A}",
        "$A",
        "${A:-b}",
        "sse",
        "stdio",
        "~/x",
        "\ud800",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *("args", "autoApprove", "bearer_token", "bearer_token_env_var", "command", "cwd", "disabled"),
        *("enabled", "env", "env_http_headers", "env_vars", "environment", "excludeTools", "headers"),
        *("httpUrl", "serverUrl", "trust", "type", "url"),
    ]
)
SERVERS = st.dictionaries(TEXTS, st.dictionaries(KEYS | TEXTS, VALUES, max_size=5) | VALUES, max_size=3)
PLACES = st.sampled_from(["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "mcp.servers"])
DOCUMENTS = st.dictionaries(PLACES | TEXTS, SERVERS | VALUES, max_size=3) | VALUES
PATH = Path("/etc/effectd/effectd.toml")


def imported(text: str, path: Path = Path("/home/mia/file.json")) -> None:
    """Import it; what comes of it is a valid configuration, or an error of ours."""
    try:
        made = planned(text, path, variables={"A": "a"})
    except ImportRefused:
        return
    rendered_text = rendered(made)
    rendered_text.encode()
    assert set(parse(rendered_text, PATH).providers) == set(made.providers)


@given(DOCUMENTS)
@example({"mcpServers": {"a": {"command": "x", "args": ["\ud800"]}}})
@example({"mcpServers": {"\ud800": {"command": "x"}}})
@example({"mcpServers": {"a": {"\ud800": "x"}}})
@example({"mcpServers": {"a": {"command": "\x7f", "cwd": "\n"}}})
@example({"mcpServers": {"a": {"url": "https://h/\x01"}}})
@example({"mcpServers": {"a": {"url": "https://h:0/"}}})
@example({"mcpServers": {"a": {"command": "x", "env": {"\x01": "y"}}}})
@example({"inputs": [1, {"id": 2}], "servers": {"a": {"command": "x"}}})
def test_any_document(document: Any) -> None:  # noqa: ANN401 - JSON
    """Whatever stands where."""
    imported(json.dumps(document))


@given(st.text())
def test_any_text(text: str) -> None:
    """JSON, TOML, or neither."""
    imported(text)
    imported(text, Path("/home/mia/file.toml"))


@given(st.sampled_from(files()), st.data())
def test_any_piece_of_a_file(path: Path, data: st.DataObject) -> None:
    """A file that was cut, or had something put into it."""
    text = path.read_text(encoding="utf-8")
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    put = data.draw(st.sampled_from(["", '"', "{", "}", ",", "[", "]", "=", "\\", "/*", "//", "\n", "\0"]))
    imported(text[:begin] + put + text[end:], CLIENTS / path.name)


@given(st.text())
def test_any_file_of_variables(text: str) -> None:
    """Lines that set nothing are passed over."""
    assert all(name and isinstance(value, str) for name, value in read_variables(text).items())
