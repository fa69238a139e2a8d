"""One server as its client wrote it: read, checked, and brought into one shape.

Part of `driver.importing`, pure: imports its `shapes` and `driver.config.errors`.

No mistake quotes a value: it may be a secret.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from driver.config.errors import Problem
from driver.importing.shapes import Raw

Transport: TypeAlias = Literal["stdio", "http", "sse", "other", "none"]

_SPEAKS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
_SSE_END: Final = "/sse"
_QUIET: Final = frozenset(
    {
        "$schema", "description", "gallery", "icon", "iconUrl", "name", "source", "startup_timeout_ms",
        "startup_timeout_sec", "version",
    }
)  # fmt: skip
"""Keys that say nothing that effectd would have to do, or say it to people alone."""
_PATIENCE: Final = frozenset({"timeout", "tool_timeout_sec"})
"""How long a call may take: in seconds or milliseconds, as each client has it."""


def _wanted(what: str) -> PydanticCustomError:
    return PydanticCustomError("wanted", "{what} is needed", {"what": what})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _wanted("a string")
    if "\0" in value or not _is_text(value):
        raise _wanted("a string without zero bytes and halves of surrogate pairs")
    return value


def _is_text(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _word(value: object) -> str:
    """A number in a list of words is what it looks like."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if number else _text(value)


def _words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _wanted("an array of strings")
    items = cast("list[object]", value)
    return tuple(_all(items, range(len(items)), _word))


def _values(value: object) -> dict[str, str]:
    """Variables: true and numbers as a shell would have them, and null for none."""
    given = {name: item for name, item in _members(value).items() if item is not None}
    names = [_variable(name) for name in given]
    return dict(zip(names, _all(given.values(), names, _switch), strict=True))


def _headers(value: object) -> dict[str, str]:
    given = _members(value)
    names = [_text(name) for name in given]
    return dict(zip(names, _all(given.values(), names, _word), strict=True))


def _members(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _wanted("an object of strings")
    return cast("dict[str, object]", value)


def _all(items: Iterable[object], names: Iterable[object], read: Callable[[object], str]) -> list[str]:
    """Return what is read of each item. Raises one error that has the names of all that are wrong."""
    found: list[str] = []
    wrong: list[str] = []
    for name, item in zip(names, items, strict=True):
        try:
            found.append(read(item))
        except PydanticCustomError:
            wrong.append(str(name))
    if wrong:
        raise _wanted(f"a string at {', '.join(wrong)}")
    return found


def _variable(name: str) -> str:
    if not name or "=" in name or not name.isprintable():
        raise _wanted("a name of a variable that is printable and has no '='")
    return name


def _switch(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else _word(value)


def _forwarded(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _wanted("an array of names")
    return tuple(_forwarded_name(item) for item in cast("list[object]", value))


def _forwarded_name(item: object) -> str:
    named = cast("dict[str, object]", item).get("name") if isinstance(item, dict) else item
    return _variable(_text(named))


def _command(value: object) -> "Command":
    """A program, a whole command line, or an object with both and more."""
    if isinstance(value, str):
        return Command(words=(_text(value),))
    if isinstance(value, list):
        return Command(words=_words(cast("object", value)))
    if not isinstance(value, dict):
        raise _wanted("a string, an array of strings, or an object with a path")
    inner = cast("dict[str, object]", value)
    return Command(
        words=(_text(inner.get("path")), *_words(inner.get("args") or [])),
        env=_values(inner.get("env") or {}),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What `command` says."""

    words: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


Text = Annotated[str, BeforeValidator(_text)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Values = Annotated[dict[str, str], BeforeValidator(_values)]
Headers = Annotated[dict[str, str], BeforeValidator(_headers)]
Names = Annotated[tuple[str, ...], BeforeValidator(_forwarded)]
CommandLine = Annotated[Command, BeforeValidator(_command)]


class _Entry(BaseModel):
    """All keys that clients have, and effectd does something about."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, arbitrary_types_allowed=True)

    command: CommandLine | None = None
    args: Words | None = None
    env: Values | None = Field(default=None, validation_alias=AliasChoices("env", "environment"))
    env_vars: Names | None = None
    env_file: Text | None = Field(default=None, validation_alias=AliasChoices("envFile", "env_file"))
    cwd: Text | None = None
    transport: Text | None = Field(
        default=None, validation_alias=AliasChoices("type", "transport", "transportType")
    )
    url: Text | None = Field(
        default=None, validation_alias=AliasChoices("url", "httpUrl", "serverUrl", "server_url", "uri")
    )
    headers: Headers | None = Field(default=None, validation_alias=AliasChoices("headers", "http_headers"))
    env_http_headers: Headers | None = None
    bearer_token: Text | None = None
    bearer_token_env_var: Text | None = None
    disabled: bool | None = None
    enabled: bool | None = None
    unasked: Names | bool | None = Field(
        default=None, validation_alias=AliasChoices("autoApprove", "alwaysAllow", "trust", "autoAllow")
    )
    shown: Names | None = Field(
        default=None, validation_alias=AliasChoices("includeTools", "enabled_tools", "enabledTools")
    )
    hidden: Names | None = Field(
        default=None, validation_alias=AliasChoices("excludeTools", "disabled_tools", "disabledTools")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server in one shape. Texts may still have placeholders in them, and be secrets."""

    raw: Raw
    transport: Transport
    enabled: bool
    words: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    env_file: str | None = None
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    notes: tuple[str, ...] = ()
    """What the client did, and effectd does not."""


def read_server(raw: Raw) -> Server | tuple[Problem, ...]:
    """Return the server, or every mistake in it."""
    value = raw.value
    if not isinstance(value, dict):
        return (Problem(table=raw.place, key=None, message="an object is needed"),)
    members = cast("dict[str, object]", value)
    if not all(_is_text(key) for key in members):
        return (
            Problem(table=raw.place, key=None, message="keys without halves of surrogate pairs are needed"),
        )
    try:
        entry = _Entry.model_validate(members)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        return tuple(dict.fromkeys(_problem(raw, detail) for detail in details))
    return _server(raw, entry)


def _problem(raw: Raw, detail: ErrorDetails) -> Problem:
    key = str(detail["loc"][0])
    message = detail["msg"] if detail["type"] == "wanted" else "true or false is needed"
    return Problem(table=raw.place, key=key, message=message)


def _server(raw: Raw, entry: _Entry) -> Server:
    command = entry.command or Command(words=())
    # what the client forwards of its own environment, and what its keys for headers name, are placeholders
    forwarded = {name: f"${{{name}}}" for name in entry.env_vars or ()}
    return Server(
        raw=raw,
        transport=_transport(entry),
        enabled=entry.disabled is not True and entry.enabled is not False,
        words=(*command.words, *(entry.args or ())),
        env={**forwarded, **command.env, **(entry.env or {})},
        env_file=entry.env_file,
        cwd=entry.cwd or (None if raw.folder is None else str(raw.folder)),
        url=entry.url or "",
        headers=_all_headers(entry),
        notes=tuple(_notes(entry)),
    )


def _all_headers(entry: _Entry) -> Mapping[str, str]:
    named = {name: f"${{{variable}}}" for name, variable in (entry.env_http_headers or {}).items()}
    bearer = entry.bearer_token
    if entry.bearer_token_env_var is not None:
        bearer = f"${{{entry.bearer_token_env_var}}}"
    authorization = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    return {**named, **(entry.headers or {}), **authorization}


def _transport(entry: _Entry) -> Transport:
    """What the client would speak. Where it says nothing of that, what there is decides."""
    has_words = entry.command is not None and any(entry.command.words)
    if entry.transport is not None:
        spoken: Transport = _SPEAKS.get(entry.transport.lower(), "other")
        given = has_words if spoken == "stdio" else bool(entry.url)
        return spoken if given or spoken == "other" else "none"
    if has_words:
        return "stdio"
    if not entry.url:
        return "none"
    return "sse" if entry.url.partition("?")[0].rstrip("/").endswith(_SSE_END) else "http"


def _notes(entry: _Entry) -> Iterator[str]:
    if entry.shown is not None or entry.hidden:
        yield "the client showed only some of its tools to the agent (a list in its file): effectd serves all"
    if entry.unasked:
        yield (
            "the client let the agent call tools without asking: whether a call needs a person is decided by "
            'approval = "required" in its contract now, beside what the client asks'
        )
    others = set(entry.model_extra or {}) - _QUIET
    if patience := sorted(others & _PATIENCE):
        yield (
            f"how long the client let a call take ({', '.join(patience)}) is not taken over: execution_s in "
            "a tool's contract says that here, and a call that takes longer is unknown"
        )
    extra = sorted(others - _PATIENCE)
    if extra:
        yield f"left out, because effectd has nothing like it: {', '.join(extra)}"
