"""What a configured MCP provider is, as plain values.

Part of `driver.providers.mcp`; imports `driver.core.contracts` only, and never the SDK.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from driver.core.contracts import HeaderKey, KeyCarrier, MetaKey

ANSWER_BYTES_MAX: Final = 8_388_608
"""The default of `answer_max_bytes`."""
LATE_RESULT_S: Final = 60.0
"""The default of `late_result_s`."""


class HeaderNeedsHttp(ValueError):
    """`key = "header:NAME"` stands beside `argv`, and a pipe has no headers."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        super().__init__(
            f'provider {provider}: key = "header:…" needs a url; over stdio use "meta" or "argument:NAME"'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A server that is started as a child process.

    `env` is added to the scrubbed environment; each of `env_files` names a file that is read at every start,
    and whose content (without one trailing newline) becomes the variable. `log_stderr` is false where a
    tool's contract withholds something: servers print what they are called with.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    log_stderr: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServer:
    """A server behind a URL that speaks Streamable HTTP.

    `url` is the address, or the file that holds it. Each of `header_files` holds the value of a header that
    goes with every request. Files are read whenever a connection is opened.
    """

    url: str | Path
    header_files: Mapping[str, Path] = field(default_factory=dict[str, Path])


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """One provider of kind `mcp`. Sizes are bytes, durations seconds. Raises `HeaderNeedsHttp`."""

    name: str
    server: StdioServer | HttpServer
    key: KeyCarrier = field(default_factory=MetaKey)
    late_result_s: float = LATE_RESULT_S
    answer_max_bytes: int = ANSWER_BYTES_MAX
    trust_annotations: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.key, HeaderKey) and isinstance(self.server, StdioServer):
            raise HeaderNeedsHttp(self.name)
