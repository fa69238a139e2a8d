"""The tables of the configuration that say what can be called: providers, and the contracts of their tools.

Part of `driver.config`; imports `driver.config.fields` and `driver.config.table`. A provider's `kind`
decides which keys it and its tools have. What stands below a key, and a class's docstring, are the text of
docs/configuration.md, as in `driver.config.models`.
"""

from typing import Annotated, Literal

from pydantic import Field

from driver.config.fields import (
    Argument,
    Array,
    BaseUrl,
    ByteCount,
    Count,
    Duration,
    DurationOrZero,
    ExitCode,
    ExpressionText,
    FilePath,
    HeaderName,
    HeaderValue,
    HttpStatus,
    HttpUrl,
    KeyCarrierText,
    Method,
    RedactPath,
    RequestPath,
    Template,
    TemplateText,
    TemplateWords,
    Tool,
    Variable,
)
from driver.config.table import Table
from store.records import IDENTICAL_DEFAULT, Identical


class ProbeTable(Table):
    """How to read after a write whether it happened.

    Where the outcome of a call was lost, the daemon asks the same provider with one read, and what that shows
    settles the operation, above a supervisor's guess and below an operator's verdict.
    """

    tool: Tool
    """A tool of the same provider that is declared `effect = "read"`, and needs no approval. Nothing else
    is ever called."""
    arguments: dict[str, Template] = Field(default_factory=dict[str, Template])
    """Its arguments. A string `"=EXPR"` is [JMESPath](https://jmespath.org) over `key`, `arguments`,
    `receipt` and `operation_id` of the operation; anything else is literal, and both may stand at any
    depth."""
    matches: ExpressionText
    """JMESPath over the same, and `result`, the answer of the read: a whole number of matches, or a
    boolean."""
    visible_after_s: DurationOrZero = 5.0
    """How long after it landed an effect may still be invisible to the read. Counted from when the
    attempt can no longer land: from its answer or the loss of its transport, and after a deadline, a
    cancel or garbage from the end of `late_result_s`. Before this, no match says nothing."""
    attempts: Count = 6
    """How often it is asked by itself: up to half of them at once, with pauses of 1 s, 2 s and so on up
    to 60 s, the others when no match can be proof. Across restarts."""
    authoritative_absence: bool = False
    """`true`: the read would find it if it had happened. Otherwise no match proves nothing, ever."""


class CompensateTable(Table):
    """The call that takes the effect back. Only what has this table is ever compensated."""

    tool: Tool
    """A tool of the same provider, and no read."""
    arguments: dict[str, Template] = Field(default_factory=dict[str, Template])
    """Its arguments, as those of a probe: over `key`, `arguments`, `receipt` and `operation_id` of what
    is taken back. Where the key travels as `argument:NAME`, that one carries the key of the compensation
    itself, and cannot be set here."""


class ToolTable(Table):
    """What you know about a tool, and effectd cannot.

    Every key is optional; a tool without a table is a write that promises nothing. A contract decides what an
    outcome means and what may run again, so say only what you know.
    """

    effect: Literal["write", "read"] = "write"
    """`"read"`: it changes nothing. Reads are never unsettled, and never refused as look-alikes."""
    idempotent: bool = False
    """The provider itself deduplicates on the key. Needs `dedupe_horizon_s`."""
    dedupe_horizon_s: Duration | None = None
    """For how long, from the first attempt, it does so."""
    retry: Literal["never", "same-key"] = "never"
    """`"same-key"`: where the outcome is not the last word, the daemon calls again with the same key.
    Needs `idempotent`, a `key` that travels, and no approval: [below](#retry--same-key)."""
    retry_attempts: Count = 3
    """How many attempts there may be in all, the first one and those before a restart included."""
    retry_backoff_s: Duration = 1.0
    """The pause after the first attempt; it doubles with each, up to 30 s, and half of it is left to
    chance. It is not shorter than the `Retry-After` of a 429 or 503, of which up to 30 s are heeded."""
    execution_s: Duration = 60.0
    """The deadline of one call; the command's own expiry may be sooner."""
    approval: Literal["none", "required"] = "none"
    """`"required"`: a person is asked before each call: [below](#approval--required)."""
    approval_expires_s: Duration = 3600.0
    """How long a request can be decided, and a grant be used; the command's own expiry may be sooner."""
    error_means: Literal["reported", "none", "unsettled"] = "reported"
    """What the provider's own error says about the effect. `"reported"`: nothing, and it is settled,
    because the caller has been told. `"none"`: nothing happened. `"unsettled"`: it may have happened, and
    somebody must look."""
    identical: Identical = IDENTICAL_DEFAULT
    """What happens to an equal call of the same run. `"guard-unsettled"`: refused while the first one
    runs or may have happened unsettled. `"once-per-run"`: refused after it has happened, too. `"allow"`:
    never refused."""
    redact: Array[RedactPath] = ()
    """The values that nobody but the provider is to see, as paths: [below](#redaction)."""
    receipt: ExpressionText | None = None
    """A JMESPath expression that finds the provider's own reference in the answer, such as
    `"result.structuredContent.id"`; kept with the outcome."""
    probe: ProbeTable | None = None
    """How to see afterwards whether a write happened: [a table of its own](#providersnametoolstoolprobe)."""
    compensate: CompensateTable | None = None
    """The call that takes it back: [a table of its own](#providersnametoolstoolcompensate)."""


class CommandToolTable(ToolTable):
    """A tool that is a program.

    These keys stand beside those of every contract. A string `"=EXPR"` is JMESPath over `key`, `arguments`
    and `operation_id`; anything else is literal. Only what has a table here can be called, and no shell is
    ever in between.
    """

    argv: TemplateWords
    """The program and its words: a list, such as `["git", "push", "=arguments.remote"]`, or one
    expression that yields a list of strings. What is no string, or holds a zero byte, is
    `not_executed/invalid_arguments`."""
    cwd: TemplateText | None = None
    """Where it runs, as a path or an expression; a relative one counts from the provider's own."""
    stdin: Template = None
    """What it reads: a string as it is, anything else as JSON. Without it, nothing."""
    output_max_bytes: ByteCount = 1_048_576
    """What is kept of each of its two outputs; what exceeds it is read and dropped."""
    ok_exit_codes: Array[ExitCode] = (0,)
    """The exit codes that are success."""
    evidence: TemplateWords | None = None
    """A program that only reads, as `argv` is written: it runs in the same folder before each attempt,
    and after one that did not succeed, 5 s at most; nothing that it has started outlives that. The first
    16 KiB that it prints are kept beside the events, for the [wall](supervisor.md), without what `redact`
    withholds; where that withholds results it is not run."""


class HttpToolTable(ToolTable):
    """A tool that is an HTTP request.

    These keys stand beside those of every contract. A string `"=EXPR"` is [JMESPath](https://jmespath.org)
    over `key`, `arguments` and `operation_id`; anything else is literal, and both may stand at any depth.
    Only what has a table here can be called.
    """

    method: Method = "POST"
    """The method of the request."""
    path: RequestPath = ""
    """Below `base_url`, without ? and #: parameters stand in `query`. An expression yields text, or a list of
    segments: `"=['orders', arguments.id]"`. An argument in it is percent-encoded, and never leaves its
    segment: one that is empty, or means another place (`..`), is `not_executed/invalid_arguments`."""
    query: dict[str, Template] = Field(default_factory=dict[str, Template])
    """Parameters. A list stands several times, null is left out."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict[HeaderName, HeaderValue])
    """Headers, as text. Null is left out; line breaks, and what is not ASCII, are `invalid_arguments`.
    How the request travels (`Host`, `Content-Length`, `Connection`, …) is not a tool's business."""
    json_body: Template = Field(default=None, alias="json")
    """The body; without it, or where it comes out as null, there is none."""
    ok_status: Array[HttpStatus] = ()
    """The statuses that are the call's own answer. Empty, they are 200 to 299; listed, they are these
    alone."""


class CommonProviderTable(Table):
    """One table for each MCP server, HTTP API or set of programs.

    `NAME` is lower-case letters, digits and hyphens; commands name a tool as `NAME/TOOL`. A provider is
    started or connected when its first call comes, not before; one whose program is missing fails its calls,
    not the daemon.
    """

    key: KeyCarrierText  # each kind has a default of its own
    env: dict[Variable, Argument] = Field(default_factory=dict[Variable, Argument])
    """Variables for the server. It sees these and a few harmless ones of the daemon's own (such as
    `PATH`), and nothing else."""
    env_files: dict[Variable, FilePath] = Field(default_factory=dict[Variable, FilePath])
    """Variables whose values are in files: `{ TOKEN = "/etc/effectd/token" }`."""
    cwd: FilePath | None = None
    """Where the server runs; without it, `work/` in the state folder."""
    roots: Array[FilePath] = ()
    """Of [command providers](#providersname-of-kind-command): the folders within which programs may run."""
    late_result_s: Duration = 60.0
    """After a deadline, how long an answer is still listened for. Only then is an MCP server told that
    nobody waits: one that is told drops its answer, or stops halfway."""
    answer_max_bytes: ByteCount = 8_388_608
    """A larger answer is `unknown/protocol_error`, and its connection is given up. So is a smaller one of
    more than 262,144 JSON values, but its connection is kept."""


class McpProviderTable(CommonProviderTable):
    """An MCP server is started with `argv` (stdio), or reached at `url` (Streamable HTTP).

    An address that is a secret itself stands in the file `url_file`. These two, `argv`, `header_files` and
    `trust_annotations` are keys of this kind alone.
    """

    kind: Literal["mcp"]
    """What it is: an MCP server, [programs](#providersname-of-kind-command) or an
    [HTTP API](#providersname-of-kind-http)."""
    argv: Array[Argument] | None = Field(default=None, min_length=1)
    """The server's command line, for stdio. Either this, or `url` or `url_file`."""
    url: HttpUrl | None = None
    """The server's address, for Streamable HTTP."""
    url_file: FilePath | None = None
    """The file that holds the address, where a part of it is a secret."""
    header_files: dict[HeaderName, FilePath] = Field(default_factory=dict[HeaderName, FilePath])
    """Headers of each request, whose values are in files: `{ Authorization =
    "/etc/effectd/issues-authorization" }`, which holds `Bearer …`. Addresses and headers are read
    whenever a connection is opened. With `http://` beyond this machine they travel in the clear."""
    key: KeyCarrierText = "meta"
    """How the idempotency key travels: `"meta"` (in the call's `_meta`, as
    `dev.effectd/idempotency-key`), `"argument:NAME"`, `"header:NAME"` (over HTTP only), `"sep3182"`
    (beside the arguments, as `idempotencyKey`), or `"none"`. It is always the operation's id: a caller
    that supplies the argument itself is refused."""
    trust_annotations: bool = False
    """`true`: a tool that no table declares is a read where the server says so (`readOnlyHint`), from
    when on it has been connected and has listed its tools. A call that comes sooner is a write."""
    tools: dict[Tool, ToolTable] = Field(default_factory=dict[Tool, ToolTable])
    """The contracts of its tools, [one table each](#providersnametoolstool)."""


class CommandProviderTable(CommonProviderTable):
    """Programs of this machine, each of which is declared as a tool.

    Beside the key below it has those of every provider.
    """

    kind: Literal["command"]
    key: KeyCarrierText = "none"
    """Programs have a place for `"argument:NAME"` only, which expressions then see as `arguments.NAME`. `key`
    in an expression is the key itself."""
    tools: dict[Tool, CommandToolTable] = Field(default_factory=dict[Tool, CommandToolTable])


class HttpProviderTable(CommonProviderTable):
    """An HTTP API, each of whose tools is one request.

    Beside the keys below it has those of every provider; `cwd` and `roots` belong to programs, and are
    refused.
    """

    kind: Literal["http"]
    key: KeyCarrierText = "none"
    """Requests have a place for `"header:NAME"`, such as `"header:Idempotency-Key"`, and for
    `"argument:NAME"`, which expressions then see as `arguments.NAME`."""
    base_url: BaseUrl
    """Where the API is, such as `"https://shop.example/v1"`: all requests go to this origin, below this
    path. No user, password or query in it."""
    tools: dict[Tool, HttpToolTable] = Field(default_factory=dict[Tool, HttpToolTable])


ProviderTable = Annotated[
    McpProviderTable | CommandProviderTable | HttpProviderTable, Field(discriminator="kind")
]
