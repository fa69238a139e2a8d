"""What keeps the gateway from starting.

Part of `driver.gateway`; imports the standard library alone.
"""


class GatewayError(Exception):
    """The gateway cannot do what the configuration asks for."""


class AddressUnusable(GatewayError):
    """Nobody can listen at the address of `gateway.listen`."""

    def __init__(self, address: str, error: OSError) -> None:
        self.address = address
        reason = error.strerror or str(error)
        super().__init__(f"gateway.listen: nobody can listen on {address}: {reason}; name another address")
