"""How a connection ended is told in words, for whoever types `effectd status`."""

from typing import Final

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import Close

from driver.link.errors import how_it_closed

NO_PROTOCOL: Final = "it takes what it got for an error of the protocol; its log says what"
NO_TOKEN: Final = "it does not admit the token any more: put the right one into the token file"


@pytest.mark.parametrize(
    ("closed", "told"),
    [
        (
            ConnectionClosedError(Close(4002, "hello:\nspeak 2"), Close(4002, ""), rcvd_then_sent=True),
            f"the plane closed the connection with 4002, {NO_PROTOCOL}: hello: speak 2",
        ),
        (
            ConnectionClosedError(Close(4003, ""), None),
            f"the plane closed the connection with 4003, {NO_TOKEN}",
        ),
        (
            ConnectionClosedError(Close(4000, "later"), Close(4000, ""), rcvd_then_sent=True),
            "the plane closed the connection with 4000: later",
        ),
        (
            ConnectionClosedError(Close(1000, ""), Close(1000, "rejected: conflict"), rcvd_then_sent=False),
            "the connection was closed from here with 1000: rejected: conflict",
        ),
        (
            ConnectionClosedError(None, Close(1011, "keepalive ping timeout")),
            "the connection was closed from here with 1011: keepalive ping timeout",
        ),
        (ConnectionClosedError(None, None), "the connection broke: nobody closed it"),
    ],
)
def test_it_is_said_who_closed_a_connection_and_why(closed: ConnectionClosed, told: str) -> None:
    """In one line, whatever the plane wrote, with what the protocol says of its code."""
    assert how_it_closed(closed) == told
