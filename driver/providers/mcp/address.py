"""Where a server behind a URL is, and what every request shows it: what the configuration's files hold.

Part of `driver.providers.mcp`; imports its `settings`, `driver.providers.value_files` and `driver.core`.

    AddressUnusable   a file does not hold what it should: nothing was sent anywhere
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from driver.core.headers import wrong_value
from driver.providers.mcp.settings import HttpServer
from driver.providers.value_files import ValueFileUnusable, read_value


class AddressUnusable(Exception):
    """The server of `provider` cannot be reached: `detail` says why, and quotes no value."""

    def __init__(self, provider: str, detail: str) -> None:
        self.provider = provider
        super().__init__(f"the server of provider {provider} cannot be reached: {detail}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where requests go, and the headers that each of them has, by their names in lower case."""

    url: httpx2.URL
    headers: Mapping[str, str]


def read_address(provider: str, server: HttpServer) -> Address:
    """Return what the configuration and its files say. Blocks. Raises `AddressUnusable`."""
    try:
        headers = {name.lower(): _header(name, path) for name, path in server.header_files.items()}
        url = _url(server.url) if isinstance(server.url, Path) else httpx2.URL(server.url)
    except ValueFileUnusable as error:
        raise AddressUnusable(provider, str(error)) from error
    return Address(url=url, headers=headers)


def _header(name: str, path: Path) -> str:
    key = f"header_files.{name}"
    value = read_value(key, path)
    if wrong := wrong_value(value):
        raise ValueFileUnusable(key, path, f"holds no header's value: {wrong}")
    return value


def _url(path: Path) -> httpx2.URL:
    try:
        url = httpx2.URL(read_value("url_file", path).strip())
    except httpx2.InvalidURL:
        # its own text may quote the address
        raise ValueFileUnusable("url_file", path, "holds no URL") from None
    if url.scheme not in {"http", "https"} or not url.host or url.userinfo or url.fragment:
        allowed = "must hold a URL that begins with http:// or https://, without user, password and fragment"
        raise ValueFileUnusable("url_file", path, allowed)
    return url
