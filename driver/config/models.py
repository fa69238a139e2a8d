"""The tables of the configuration that belong to the daemon itself, and the whole of it: `Config`.

Part of `driver.config`; imports its siblings and the limits of `driver.core`. Names, defaults and
units are those of the contract (docs/configuration.md). What keys mean together is checked in
`driver.config.rules`.
"""

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from driver.config.fields import (
    Argument,
    Array,
    ByteCount,
    Count,
    Days,
    Duration,
    DurationOrZero,
    FilePath,
    FrameBytes,
    HttpUrl,
    ListenAddress,
    ProviderName,
    Text,
    WebSocketUrl,
    wanted,
)
from driver.config.places import RUNTIME_DIR, STATE_DIR
from driver.config.providers import ProviderTable
from driver.config.sockets import GATEWAY_SOCKET, INSPECT_SOCKET, OPERATOR_SOCKET
from driver.config.table import Table
from driver.core.fields import TEXT_MAX
from driver.core.frames import FRAME_BYTES_MAX


def _fits_hello(driver_id: str) -> str:
    """The `driver_id` of `hello` is a name of the protocol: a plane refuses a longer one."""
    allowed = f"a string of 1 to {TEXT_MAX:,} characters"
    if len(driver_id) > TEXT_MAX:
        raise wanted(allowed)
    return driver_id


class DriverTable(Table):
    """`[driver]`: who the daemon is, where its files are, and its limits."""

    id: Annotated[Text, AfterValidator(_fits_hello)] = Field(default_factory=socket.gethostname)
    state_dir: FilePath = STATE_DIR
    runtime_dir: FilePath = RUNTIME_DIR
    max_inflight: Count = 64
    run_unsettled_max: Count = 64
    queue_max: Count = 1024
    approvals_max: Count = 256
    drain_s: Duration = 30.0
    allow_self_approval: bool = False


class ControlTable(Table):
    """`[control]`: the plane; without the table the daemon stands alone."""

    url: WebSocketUrl
    scope: Text
    token_file: FilePath
    ca_file: FilePath | None = None
    client_cert_file: FilePath | None = None
    client_key_file: FilePath | None = None
    proxy: HttpUrl | None = None
    allow_plaintext: bool = False
    dead_after_s: Duration = 20.0
    max_frame_bytes: FrameBytes = FRAME_BYTES_MAX
    intent_ack: Literal["off", "required"] = "off"
    intent_ack_timeout_s: Duration = 10.0


class JournalTable(Table):
    """`[journal]`: how large it may become, and what may be pruned when."""

    retention_days: Days = 30.0
    retention_unknown_days: Days = 365.0
    tombstone_days: Days = 365.0
    max_bytes: ByteCount = 2_000_000_000
    reserve_bytes: ByteCount = 16_000_000
    allow_network_fs: bool = False


class GatewayTable(Table):
    """`[gateway]`: the local MCP front door; off unless the table is there."""

    listen: ListenAddress = ""
    token_file: FilePath | None = None


class LogTable(Table):
    """`[log]`: `auto` is JSON unless on a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class SupervisorTable(Table):
    """`[supervisor]`: how often it looks, and whom it asks."""

    interval_s: Duration = 30.0
    model: Literal["rules", "openai", "anthropic", "command"] = "rules"
    base_url: HttpUrl | None = None
    model_name: Text | None = None
    api_key_file: FilePath | None = None
    argv: Array[Argument] | None = Field(default=None, min_length=1)
    timeout_s: Duration = 60.0
    max_attempts: Count = 3
    wall_max_bytes: ByteCount = 64_000
    min_age_s: DurationOrZero = 10.0


class Config(Table):
    """A whole configuration, valid on its own and in its parts. All paths in it are absolute."""

    driver: DriverTable = DriverTable()
    control: ControlTable | None = None
    journal: JournalTable = JournalTable()
    gateway: GatewayTable | None = None
    log: LogTable = LogTable()
    supervisor: SupervisorTable = SupervisorTable()
    providers: dict[ProviderName, ProviderTable] = Field(default_factory=dict[ProviderName, ProviderTable])

    @property
    def scope(self) -> str:
        """What makes operation ids unique: the plane's name, or the driver's own where it stands alone."""
        return self.control.scope if self.control else self.driver.id

    @property
    def work_dir(self) -> Path:
        """Where providers run that name no `cwd`."""
        return self.driver.state_dir / "work"

    @property
    def inspect_socket(self) -> Path:
        """The local API for reading."""
        return self.driver.runtime_dir / INSPECT_SOCKET

    @property
    def operator_socket(self) -> Path:
        """The local API for reading and writing."""
        return self.driver.runtime_dir / OPERATOR_SOCKET

    @property
    def gateway_socket(self) -> Path:
        """Where relays of agents connect, if there is a gateway."""
        return self.driver.runtime_dir / GATEWAY_SOCKET
