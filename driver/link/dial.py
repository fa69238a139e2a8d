"""Opens one WebSocket to the plane, as `docs/protocol.md` (section 1) wants it, or says why it could not.

Part of `driver.link`; imports `websockets`, and maps its errors once. What is switched off here is switched
off for a reason: the environment's proxies (they would see the token), redirects (they would carry it on),
compression (small frames gain nothing, and it costs memory), the library's own log (at level debug it shows
the headers).
"""

import logging
import ssl
from errno import EPERM
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import anyio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidProxy, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from driver.core.frames import SUBPROTOCOL
from driver.link.connection import Connection
from driver.link.errors import PlaneRefused, PlaneUnreachable, TlsUnusable
from driver.link.settings import LinkSettings
from driver.link.token import Token

PING_SHARE: Final = 0.4
"""Of `dead_after_s`: how long between two pings, and how long until a pong."""
CLOSE_SHARE: Final = 0.1
"""Of `dead_after_s`: how long a closing handshake may take."""

_SILENT: Final = logging.getLogger("driver.link.websockets")
_SILENT.setLevel(logging.CRITICAL)
_SILENT.propagate = False
_SILENT.addHandler(logging.NullHandler())


def shown_url(url: str) -> str:
    """Return `url` for logs and `status`: without user information, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


async def dial(settings: LinkSettings, token: Token, user_agent: str) -> Connection:
    """Return an open socket. Raises `LinkError`; takes at most `dead_after_s` for the handshake.

    Certificates are read at every call, so that rotated ones are picked up. Cancelled, it leaves no socket
    behind.
    """
    url = shown_url(settings.url)
    context = await _tls(settings) if settings.url.lower().startswith("wss:") else None
    try:
        socket = await _Dialer(
            settings.url,
            ssl=context,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            additional_headers={"Authorization": f"Bearer {token.value}"},
            user_agent_header=user_agent,
            compression=None,
            proxy=settings.proxy,
            open_timeout=settings.dead_after_s,
            ping_interval=settings.dead_after_s * PING_SHARE,
            ping_timeout=settings.dead_after_s * PING_SHARE,
            close_timeout=settings.dead_after_s * CLOSE_SHARE,
            max_size=settings.frame_bytes_max,
            logger=_SILENT,
            create_connection=Connection,
        )
        assert isinstance(socket, Connection), "it was made as one"
    except InvalidStatus as error:
        raise PlaneRefused(url, error.response.status_code) from None
    except (OSError, EOFError, ImportError, InvalidHandshake, InvalidProxy, InvalidURI) as error:
        raise PlaneUnreachable(url, _said(error)) from None
    return socket


class _Dialer(connect):
    """The library's `connect`, without redirects: each would hand the token to whoever it names."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _tls(settings: LinkSettings) -> ssl.SSLContext:
    try:
        return await anyio.to_thread.run_sync(_context, settings, abandon_on_cancel=True)
    except (OSError, ValueError) as error:
        raise TlsUnusable(_said(error)) from None


def _context(settings: LinkSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=_name(settings.ca_file))
    if settings.client_cert_file is not None:
        # without a password callback, OpenSSL would ask the terminal for the password of an encrypted key
        context.load_cert_chain(
            settings.client_cert_file, _name(settings.client_key_file), password=_no_password
        )
    return context


def _no_password() -> str:
    """Called for an encrypted key: what it raises is mapped to `TlsUnusable`."""
    raise PermissionError(EPERM, "the client's key is encrypted, and nobody is there to type its password")


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _said(error: BaseException) -> str:
    """What went wrong, and why where the library says it, in one line."""
    texts = [" ".join(str(each).split()) for each in (error, error.__cause__) if each is not None]
    return ": ".join(text for text in texts if text) or type(error).__name__
