"""Where in a document the servers stand: each client keeps them under a name of its own.

Part of `driver.importing`, pure: imports its `errors` and `jsonc`, and `driver.config.errors`.

    {"mcpServers": {NAME: …}}                     Claude Desktop, Claude Code, Cursor, Cline, Gemini, …
    {"projects": {FOLDER: {"mcpServers": …}}}     Claude Code, for each project
    {"servers": {NAME: …}, "inputs": […]}         VS Code; in its settings within "mcp"
    {"context_servers": {NAME: …}}                Zed
    {"mcp": {NAME: {"type": "local", …}}}         OpenCode
    [mcp_servers.NAME]                            Codex
    {NAME: {"command": …}}                        the inner part alone
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from driver.config.errors import Problem, TablePath
from driver.importing.errors import SourceInvalid, SourceUnreadable
from driver.importing.jsonc import Members, NotJson, read_json

Form: TypeAlias = Literal["mcpServers", "servers", "settings", "context_servers", "opencode", "mcp_servers"]
"""What a client expects back: the shapes above, by what is special about them."""

NAMES: Final[Mapping[str, Form]] = {
    "mcpServers": "mcpServers",
    "context_servers": "context_servers",
    "mcp_servers": "mcp_servers",
    "mcp.servers": "settings",
    "servers": "servers",
}
_INSIDE: Final = ("command", "url", "httpUrl", "serverUrl")
"""What only a server's own table has."""
_TOML: Final = ".toml"
_SUFFIXES: Final = (_TOML, ".json", ".jsonc")
_YAML: Final = (".yaml", ".yml")
_LOCAL_OR_REMOTE: Final = ("local", "remote")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """One server as it stands in the document: its name, where it is, and what is there."""

    name: str
    place: TablePath
    value: object
    folder: Path | None = None
    """The project that it belongs to, where the document says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """All servers of a file, in its order. `inputs` are values that the client would ask for, with why.

    `problems` are the mistakes that were found on the way to them.
    """

    path: Path
    form: Form
    servers: tuple[Raw, ...]
    problems: tuple[Problem, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    form: Form
    place: TablePath
    value: object
    folder: Path | None = None


def read_document(text: str, path: Path) -> Document:
    """Return the servers in `text`, the content of the file at `path`.

    Raises `SourceUnreadable` where it is neither JSON nor TOML, YAML for example, and `SourceInvalid` where
    it has no servers.
    """
    top = _top(text, path)
    found = list(_found(top))
    problems = (*_wrong(found), *_repeated(found))
    servers = tuple(raw for one in found for raw in _servers(one))
    if not servers:
        raise SourceInvalid(path, problems or [_nothing_found()])
    return Document(path=path, form=found[0].form, servers=servers, problems=problems, inputs=_inputs(top))


def _top(text: str, path: Path) -> Mapping[str, object]:
    if _is_yaml(text, path):
        raise SourceUnreadable(
            path,
            "is YAML, of which some clients have files; it is not read here: write its servers as JSON, "
            '{"mcpServers": {"NAME": {"command": …, "args": […]}}}, into a file, and name that one',
        )
    if _is_toml(text, path):
        return _toml(text, path)
    try:
        value = read_json(text)
    except NotJson as error:
        raise SourceUnreadable(path, f"is no JSON: {error.detail}; correct that, and try again") from None
    if not isinstance(value, dict):
        raise SourceInvalid(path, [_nothing_found()])
    return cast("Mapping[str, object]", value)


def _is_yaml(text: str, path: Path) -> bool:
    """As its name says, unless it is JSON, which is YAML too."""
    return path.suffix.lower() in _YAML and not text.lstrip().startswith("{")


def _is_toml(text: str, path: Path) -> bool:
    """As its name says; where that says nothing, JSON begins with a brace or a comment of its own."""
    suffix = path.suffix.lower()
    if suffix in _SUFFIXES:
        return suffix == _TOML
    return not text.lstrip().startswith(("{", "/"))


def _toml(text: str, path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SourceUnreadable(path, "is no TOML: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        # its own text quotes no more than one character
        raise SourceUnreadable(path, f"is no TOML: {error}; correct that, and try again") from None
    except ValueError:
        raise SourceUnreadable(path, "is no TOML: it has a number of very many digits, or no date") from None


def _found(top: Mapping[str, object]) -> Iterator[_Found]:
    for name, form in NAMES.items():
        if name in top:
            yield _Found(form=form, place=(name,), value=top[name])
    yield from _projects(top.get("projects"))
    mcp = top.get("mcp")
    if isinstance(mcp, dict):
        yield from _within_mcp(cast("Mapping[str, object]", mcp))
    elif not any(name in top for name in NAMES) and _bare(top):
        yield _Found(form="mcpServers", place=(), value=top)


def _projects(value: object) -> Iterator[_Found]:
    if not isinstance(value, dict):
        return
    for folder, project in cast("dict[str, object]", value).items():
        if isinstance(project, dict) and "mcpServers" in project:
            place = ("projects", folder, "mcpServers")
            inner = cast("dict[str, object]", project)["mcpServers"]
            yield _Found(form="mcpServers", place=place, value=inner, folder=Path(folder))


def _within_mcp(mcp: Mapping[str, object]) -> Iterator[_Found]:
    if "servers" in mcp and not _is_local_or_remote(mcp["servers"]):
        yield _Found(form="settings", place=("mcp", "servers"), value=mcp["servers"])
    elif any(_is_local_or_remote(value) for value in mcp.values()):
        yield _Found(form="opencode", place=("mcp",), value=mcp)


def _is_local_or_remote(value: object) -> bool:
    return isinstance(value, dict) and cast("dict[str, object]", value).get("type") in _LOCAL_OR_REMOTE


def _bare(top: Mapping[str, object]) -> bool:
    return bool(top) and all(
        isinstance(value, dict) and any(key in value for key in _INSIDE) for value in top.values()
    )


def _servers(found: _Found) -> Iterator[Raw]:
    value = found.value
    if isinstance(value, list):
        for position, item in enumerate(cast("list[object]", value)):
            yield Raw(
                name=_name(item) or f"server-{position + 1}",
                place=(*found.place, str(position)),
                value=item,
                folder=found.folder,
            )
    elif isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            yield Raw(name=name, place=(*found.place, name), value=item, folder=found.folder)


def _name(item: object) -> str | None:
    name = cast("dict[str, object]", item).get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def _wrong(found: list[_Found]) -> Iterator[Problem]:
    for one in found:
        if not isinstance(one.value, dict | list):
            yield Problem(table=one.place, key=None, message="an object is needed, of servers by their names")


def _repeated(found: list[_Found]) -> Iterator[Problem]:
    for one in found:
        if isinstance(one.value, Members):
            for name in one.value.twice:
                message = "there are two servers of this name, of which clients see one: rename or remove one"
                yield Problem(table=(*one.place, name), key=None, message=message)


def _nothing_found() -> Problem:
    known = ", ".join((*NAMES, "mcp"))
    return Problem(table=(), key=None, message=f"there are no MCP servers here; looked for: {known}")


def _inputs(top: Mapping[str, object]) -> Mapping[str, str]:
    """What the client would ask a person for: why, by id."""
    mcp = top.get("mcp")
    within = cast("dict[str, object]", mcp).get("inputs") if isinstance(mcp, dict) else None
    asked: dict[str, str] = {}
    for inputs in (top.get("inputs"), within):
        for item in cast("list[object]", inputs) if isinstance(inputs, list) else ():
            one = cast("dict[str, object]", item) if isinstance(item, dict) else {}
            if isinstance(name := one.get("id"), str):
                why = one.get("description")
                asked[name] = why if isinstance(why, str) else ""
    return asked
