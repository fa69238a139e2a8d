"""What the link is told by the configuration (`[control]`).

Part of `driver.link`; imports only the frames' limits. `driver.config` has checked what stands here: the
URL's scheme, the paths, the ranges.
"""

from dataclasses import dataclass
from pathlib import Path

from driver.core.frames import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Where the plane is, and how it is talked to."""

    url: str
    token_file: Path
    ca_file: Path | None = None
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    proxy: str | None = None
    """The one proxy that is used; what the environment says about proxies is ignored."""
    dead_after_s: float = 20.0
    """Seconds within which a dead connection is noticed."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """A larger frame of the plane closes the socket with 1009."""
