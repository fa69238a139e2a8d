"""What the keys that say how an MCP server is started or reached mean together.

Part of `driver.config`; imports its models. Its rules are those of `driver.config.rules`, of one kind.
"""

from typing import Final

from driver.config.errors import Clash, Found
from driver.config.providers import McpProviderTable, ProviderTable


def _server_is_one(provider: ProviderTable) -> Found:
    if not isinstance(provider, McpProviderTable):
        return None
    ways = {"argv": provider.argv, "url": provider.url, "url_file": provider.url_file}
    given = [key for key, value in ways.items() if value is not None]
    if len(given) == 1:
        return None
    found = f"both {' and '.join(given)} are set" if given else "missing, as is url"
    return Clash(
        "argv", f"{found}; a server is either started (argv) or reached (url, or url_file): set exactly one"
    )


def _children_need_argv(provider: ProviderTable) -> Found:
    if not isinstance(provider, McpProviderTable) or provider.argv is not None:
        return None
    for_children = {"env": provider.env, "env_files": provider.env_files, "cwd": provider.cwd}
    given = [key for key, value in for_children.items() if value]
    return (
        Clash(given[0], "belongs to a server that is started with argv, and this one has a url")
        if given
        else None
    )


def _headers_need_address(provider: ProviderTable) -> Found:
    if not isinstance(provider, McpProviderTable) or not provider.header_files or provider.argv is None:
        return None
    return Clash("header_files", "belongs to a server that is reached at a url, and this one is started")


def _header_files_are_free(provider: ProviderTable) -> Found:
    if not isinstance(provider, McpProviderTable):
        return None
    lower = [name.lower() for name in provider.header_files]
    carrier, _, key = provider.key.partition(":")
    for name in provider.header_files:
        if _is_the_protocols(name):
            return Clash("header_files", f"sets {name}, in which MCP sends something else: leave it out")
        if carrier == "header" and key.lower() == name.lower():
            return Clash("header_files", f"sets {name}, which carries the idempotency key: leave it out")
        if lower.count(name.lower()) > 1:
            return Clash("header_files", f"has {name} twice, in other letters: keep one")
    return None


def _is_the_protocols(name: str) -> bool:
    return name.lower() in {"accept", "content-type"} or name.lower().startswith("mcp-")


def _protocol_keeps_its_headers(provider: ProviderTable) -> Found:
    carrier, _, name = provider.key.partition(":")
    if not isinstance(provider, McpProviderTable) or carrier != "header":
        return None
    if _is_the_protocols(name):
        return Clash("key", f'found "{provider.key}", and MCP sends something else in that header')
    return None


REACHING: Final = (
    _server_is_one,
    _children_need_argv,
    _headers_need_address,
    _header_files_are_free,
    _protocol_keeps_its_headers,
)
