"""What to put into the client in place of its servers, in the shape that its file has.

Part of `driver.importing`, pure: imports its `shapes` and `toml`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from driver.importing import toml
from driver.importing.shapes import Form

NAME: Final = "effectd"
"""What the one server is called."""
_WITHIN: Final[Mapping[Form, tuple[str, ...]]] = {
    "mcpServers": ("mcpServers",),
    "servers": ("servers",),
    "settings": ("mcp", "servers"),
    "context_servers": ("context_servers",),
    "opencode": ("mcp",),
}


def block(form: Form, argv: Sequence[str]) -> str:
    """Return the block that makes a client start `argv` as its one server."""
    if form == "mcp_servers":
        command, *args = argv
        return f"[mcp_servers.{NAME}]\ncommand = {toml.string(command)}\nargs = {toml.array(args)}"
    value: object = {NAME: _entry(form, argv)}
    for key in reversed(_WITHIN[form]):
        value = {key: value}
    return json.dumps(value, indent=2, ensure_ascii=False)


def _entry(form: Form, argv: Sequence[str]) -> Mapping[str, object]:
    command, *args = argv
    match form:
        case "opencode":
            return {"type": "local", "command": [*argv], "enabled": True}
        case "servers" | "settings":
            return {"type": "stdio", "command": command, "args": args}
        case "context_servers":
            return {"source": "custom", "command": command, "args": args}
        case _:
            return {"command": command, "args": args}
