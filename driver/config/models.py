"""The tables of the configuration that belong to the daemon itself, and the whole of it: `Config`.

Part of `driver.config`; imports its siblings and the limits of `driver.core`. What keys mean together is
checked in `driver.config.rules`.

What stands below a key here says what it means, in Markdown, and its class's docstring introduces the table:
`make reference` writes docs/configuration.md from both (tests/config_reference.py). They are read from the
source, so that a daemon, which has no use for them, neither reads nor keeps them.
"""

import socket
from pathlib import Path
from typing import Literal

from pydantic import Field

from driver.config.fields import (
    Argument,
    Array,
    ByteCount,
    Count,
    Days,
    DriverId,
    Duration,
    DurationOrZero,
    FilePath,
    FrameBytes,
    HttpUrl,
    ListenAddress,
    ProviderName,
    Text,
    WebSocketUrl,
)
from driver.config.places import RUNTIME_DIR, STATE_DIR
from driver.config.providers import ProviderTable
from driver.config.sockets import GATEWAY_SOCKET, INSPECT_SOCKET, OPERATOR_SOCKET
from driver.config.table import Table
from driver.core.frames import FRAME_BYTES_MAX


class DriverTable(Table):
    """Who the daemon is, where its files are, and its limits."""

    id: DriverId = Field(default_factory=socket.gethostname)
    """Who this daemon is: the `driver_id` that the plane sees. Stand-alone, it is the scope of operation
    ids as well."""
    state_dir: FilePath = STATE_DIR
    """The journal and its lock; made with mode 0700. It must be on a local disk."""
    runtime_dir: FilePath = RUNTIME_DIR
    """`inspect.sock` and `operator.sock`, and the marks that a reboot clears; made when it is missing."""
    max_inflight: Count = 64
    """Operations that execute at once."""
    run_unsettled_max: Count = 64
    """A run with this many unsettled writes gets no further ones (`overloaded`) until some are settled."""
    queue_max: Count = 1024
    """Operations that are accepted and wait; beyond it a new one is refused `overloaded`."""
    approvals_max: Count = 256
    """Operations that wait for a person: a bound of their own. Beyond it a call that needs an approval is
    refused `overloaded`."""
    drain_s: Duration = 30.0
    """At SIGTERM, how long running operations may take to finish; then they are cancelled
    (`unknown/cancelled_after_dispatch`). What only waits is kept for the next start."""
    allow_self_approval: bool = False
    """Whether the uid behind a call of the gateway may decide about its approval: with the operator's
    commands, or, where its client offers elicitation, in the client."""


class ControlTable(Table):
    """The control plane. Without this table the daemon stands alone.

    Its calls then come through the [gateway](#gateway).
    """

    url: WebSocketUrl
    """`wss://…`, or `ws://…` to this machine. No user and password in it."""
    scope: Text
    """Names the plane within operation ids and idempotency keys. The same for every sandbox of one plane,
    and never changed while commands are open."""
    token_file: FilePath
    """The bearer token; read again at every connect, so that a rotated one is picked up."""
    ca_file: FilePath | None = None
    """Certificates to trust in place of the system's."""
    client_cert_file: FilePath | None = None
    """The daemon's own certificate, where the plane asks for one."""
    client_key_file: FilePath | None = None
    """Its key, where that is not in the same file."""
    proxy: HttpUrl | None = None
    """An HTTP proxy. Proxy variables of the environment are not looked at."""
    allow_plaintext: bool = False
    """`true` allows `ws://` beyond this machine: the token then travels in the clear."""
    dead_after_s: Duration = 20.0
    """A link that has been silent for this long is dead, and is made anew."""
    max_frame_bytes: FrameBytes = FRAME_BYTES_MAX
    """No frame may be larger, in either direction; an event is cut to it once, when it is committed."""
    intent_ack: Literal["off", "required"] = "off"
    """`"required"`: nothing is dispatched before the plane has acknowledged the call's
    `operation.started`, so that even a sandbox that vanishes with its disk leaves a record of it; each
    call then waits for the plane once."""
    intent_ack_timeout_s: Duration = 10.0
    """With `intent_ack = "required"`: how long that is waited for; then the call ends
    `not_executed/intent_not_acknowledged`. `execution_s` counts from the dispatch, after the wait."""


class JournalTable(Table):
    """How large the journal may become, and what may be pruned when."""

    retention_days: Days = 30.0
    """What is settled and acknowledged is pruned this long after its newest event, in short steps between
    commits."""
    retention_unknown_days: Days = 365.0
    """The same for what only a supervisor has judged. What is unsettled is never pruned."""
    tombstone_days: Days = 365.0
    """How long a pruned command is still known: redelivered, it is answered `retired`, and its
    look-alikes are judged by it. Counted from the pruning, and announced to the plane, which never
    redelivers a command that is older."""
    max_bytes: ByteCount = 2_000_000_000
    """A journal of this size, free pages not counted, refuses new calls with `no_room`; nothing is
    dropped."""
    reserve_bytes: ByteCount = 16_000_000
    """The part of it, and of the disk, that only the outcomes of running operations and settling commands
    may use. Settling commands are refused `overloaded` where the file is larger than `max_bytes` by as
    much again (16 MiB at least), or only half of it is left of the disk. An outcome takes at most about
    three times the plane's largest frame (file, `-wal` and pages), so `max_inflight` long ones fit into
    that many times as much."""
    allow_network_fs: bool = False
    """`true` accepts a network or FUSE file system, whose locks and fsync may not hold what they promise."""


class GatewayTable(Table):
    """The front door for agents, off unless the table is there.

    It is `gateway.sock` (0660) in `runtime_dir`, where [`effectd mcp`](cli.md) connects. An empty table is
    enough.
    """

    listen: ListenAddress = ""
    """Serve Streamable HTTP too, at `http://HOST:PORT/mcp`; requests with another `Host`, or an `Origin`
    that is not this address, are refused."""
    token_file: FilePath | None = None
    """Required with `listen`: the bearer token that clients show; read again for each request."""


class LogTable(Table):
    """What is written to standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that are written."""
    format: Literal["auto", "json", "console"] = "auto"
    """`"json"` for machines, `"console"` for eyes; `"auto"`: JSON unless standard error is a terminal."""


class SupervisorTable(Table):
    """Gives what nobody knows a verdict, as best effort: [supervisor.md](supervisor.md).

    It runs without the table, too, with the embedded rules.
    """

    interval_s: Duration = 30.0
    """How often it looks, and how long the second attempt to ask a model waits."""
    model: Literal["rules", "openai", "anthropic", "command"] = "rules"
    """Whom it asks. `"rules"` are embedded, and need no network."""
    base_url: HttpUrl | None = None
    """Of `"openai"` (any API that speaks chat completions, with its `/v1`) and `"anthropic"`; theirs
    unless given. `http://` beyond this machine is refused with a key."""
    model_name: Text | None = None
    """The model's name, required with `"openai"` and `"anthropic"`; it stands in each verdict."""
    api_key_file: FilePath | None = None
    """The key, read at each use; required with `"anthropic"`."""
    argv: Array[Argument] | None = Field(default=None, min_length=1)
    """Of `"command"`: the program, which runs in the state folder's `work/`."""
    timeout_s: Duration = 60.0
    """How long one answer may take."""
    max_attempts: Count = 3
    """How often it is asked about a run since that run's last verdict; then the rules decide."""
    wall_max_bytes: ByteCount = 64_000
    """What a model is shown at once; never less than one operation in its shortest form, about 1 kB."""
    min_age_s: DurationOrZero = 10.0
    """How old the youngest unsettled operation of a run must be."""


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
