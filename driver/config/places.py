"""Where things are that nobody said anything about.

Part of `driver.config`; imports only the standard library, for commands that have no time for more.
"""

from pathlib import Path
from typing import Final

DEFAULT_PATH: Final = Path("/etc/effectd/effectd.toml")
"""The configuration."""
STATE_DIR: Final = Path("/var/lib/effectd")
"""`driver.state_dir`."""
RUNTIME_DIR: Final = Path("/run/effectd")
"""`driver.runtime_dir`."""
