"""The tables of the configuration that say what can be called: providers, and the contracts of their tools.

Part of `driver.config`; imports `driver.config.fields` and `driver.config.table`. A provider's `kind`
decides which keys it and its tools have.
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
    """`[providers.P.tools.T.probe]`: how to read after a write whether it happened."""

    tool: Tool
    arguments: dict[str, Template] = Field(default_factory=dict[str, Template])
    matches: ExpressionText
    visible_after_s: DurationOrZero = 5.0
    attempts: Count = 6
    authoritative_absence: bool = False


class CompensateTable(Table):
    """`[providers.P.tools.T.compensate]`: the call that takes the effect back."""

    tool: Tool
    arguments: dict[str, Template] = Field(default_factory=dict[str, Template])


class ToolTable(Table):
    """`[providers.P.tools.T]`: what is promised about one tool, whatever its provider's kind."""

    effect: Literal["write", "read"] = "write"
    idempotent: bool = False
    dedupe_horizon_s: Duration | None = None
    retry: Literal["never", "same-key"] = "never"
    retry_attempts: Count = 3
    retry_backoff_s: Duration = 1.0
    execution_s: Duration = 60.0
    approval: Literal["none", "required"] = "none"
    approval_expires_s: Duration = 3600.0
    error_means: Literal["reported", "none", "unsettled"] = "reported"
    identical: Identical = IDENTICAL_DEFAULT
    redact: Array[RedactPath] = ()
    receipt: ExpressionText | None = None
    probe: ProbeTable | None = None
    compensate: CompensateTable | None = None


class CommandToolTable(ToolTable):
    """A tool that is a program: a list of words, or one expression that yields it."""

    argv: TemplateWords
    cwd: TemplateText | None = None
    stdin: Template = None
    output_max_bytes: ByteCount = 1_048_576
    ok_exit_codes: Array[ExitCode] = (0,)
    evidence: TemplateWords | None = None


class HttpToolTable(ToolTable):
    """A tool that is an HTTP request."""

    method: Method = "POST"
    path: RequestPath = ""
    query: dict[str, Template] = Field(default_factory=dict[str, Template])
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict[HeaderName, HeaderValue])
    json_body: Template = Field(default=None, alias="json")
    ok_status: Array[HttpStatus] = ()


class CommonProviderTable(Table):
    """The keys that all kinds of providers have."""

    key: KeyCarrierText = "none"
    env: dict[Variable, Argument] = Field(default_factory=dict[Variable, Argument])
    env_files: dict[Variable, FilePath] = Field(default_factory=dict[Variable, FilePath])
    cwd: FilePath | None = None
    roots: Array[FilePath] = ()
    late_result_s: Duration = 60.0
    answer_max_bytes: ByteCount = 8_388_608


class McpProviderTable(CommonProviderTable):
    """An MCP server: started with `argv` (stdio), or reached at `url` (Streamable HTTP).

    An address that is a secret itself stands in the file `url_file`.
    """

    kind: Literal["mcp"]
    argv: Array[Argument] | None = Field(default=None, min_length=1)
    url: HttpUrl | None = None
    url_file: FilePath | None = None
    header_files: dict[HeaderName, FilePath] = Field(default_factory=dict[HeaderName, FilePath])
    key: KeyCarrierText = "meta"
    trust_annotations: bool = False
    tools: dict[Tool, ToolTable] = Field(default_factory=dict[Tool, ToolTable])


class CommandProviderTable(CommonProviderTable):
    """Programs of this machine, each declared as a tool."""

    kind: Literal["command"]
    tools: dict[Tool, CommandToolTable] = Field(default_factory=dict[Tool, CommandToolTable])


class HttpProviderTable(CommonProviderTable):
    """An HTTP API, each request declared as a tool."""

    kind: Literal["http"]
    base_url: BaseUrl
    tools: dict[Tool, HttpToolTable] = Field(default_factory=dict[Tool, HttpToolTable])


ProviderTable = Annotated[
    McpProviderTable | CommandProviderTable | HttpProviderTable, Field(discriminator="kind")
]
