"""What the relay says without a daemon is what the daemon's own server would say."""

from typing import Any, cast

import pytest
from mcp.server.lowlevel.server import NotificationOptions
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

from driver.gateway.front import Front
from driver.gateway.ledger import Entry
from driver.gateway.limits import GatewayLimits
from driver.gateway.offline import HANDSHAKES, MODERN, answer, capabilities

NOBODY: Any = None


class Lists:
    """What the server asks of a catalogue when it is made."""

    def schema(self, name: str) -> None: ...


def front() -> Front:
    """Return the daemon's server, with nobody behind it."""
    lists = cast("Any", Lists())
    return Front(NOBODY, lists, NOBODY, NOBODY, NOBODY, GatewayLimits(), NOBODY)


def test_the_versions_are_those_of_the_sdk() -> None:
    """Of both eras, the newest last."""
    assert tuple(HANDSHAKE_PROTOCOL_VERSIONS) == HANDSHAKES
    assert tuple(MODERN_PROTOCOL_VERSIONS) == MODERN


def test_the_handshake_says_what_the_server_says() -> None:
    """Capabilities, name, version and what the model is told first."""
    options = front().options()
    entry = Entry({"id": 1, "method": "initialize", "params": {"protocolVersion": HANDSHAKES[0]}})
    result = cast("dict[str, Any]", answer(entry, "nowhere", "effectd run")["result"])
    info = result["serverInfo"]
    assert result["protocolVersion"] == HANDSHAKES[0]
    said = options.capabilities.model_dump(by_alias=True, exclude_none=True)
    assert result["capabilities"] == {name: value for name, value in said.items() if value}
    assert result["instructions"] == options.instructions
    assert info == {"name": options.server_name, "title": options.title, "version": options.server_version}


@pytest.mark.parametrize(("modern", "subscribe"), [(None, False), (LATEST_MODERN_VERSION, True)])
def test_the_capabilities_are_those_of_the_era(modern: str | None, subscribe: bool) -> None:
    """In the newer one, changes are told to whoever listens."""
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    found = front().server.get_capabilities(changes, protocol_version=modern)
    assert found.model_dump(by_alias=True, exclude_none=True) == capabilities(subscribe=subscribe)
