"""The names of the local API's sockets, and how long a socket's path may be.

Part of `driver.config`; imports only the standard library. They stand here because the configuration checks
them, and whoever serves or asks the local API may import it.
"""

from typing import Final

INSPECT_SOCKET: Final = "inspect.sock"
"""For reads, open to the group."""
OPERATOR_SOCKET: Final = "operator.sock"
"""For everything, open to the owner alone."""
GATEWAY_SOCKET: Final = "gateway.sock"
"""For agents' relays, open to the group; there only where there is a gateway."""
SOCKET_PATH_BYTES_MAX: Final = 107
"""`sun_path` of Linux is 108 bytes with its final zero (unix(7))."""
