"""What becomes of each server of a client's file: a provider, or a comment that says why there is none.

Part of `driver.importing`, pure: imports its siblings, `driver.config.errors` and `driver.core.headers`.
"""

import base64
import os.path
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from driver.config.errors import Problem, TablePath
from driver.core.headers import wrong_name, wrong_value
from driver.importing.dotenv import read_variables
from driver.importing.entries import Server, read_server
from driver.importing.errors import SourceInvalid
from driver.importing.names import file_name, provider_name
from driver.importing.placeholders import Expanded, Surroundings, expand
from driver.importing.secrecy import Hidden, Part, Word, is_switch, parts, url_is_secret
from driver.importing.shapes import Document, Form

WORD_VARIABLE: Final = "EFFECTD_WORD"
"""Begins the variables that bring secret words into a command line."""
_OWN_PROGRAM: Final = "effectd"

Fate: TypeAlias = Literal["provider", "disabled", "own", "left_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """One file that holds a secret: its name, and what it holds."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One server as the configuration has it. Of the keys `*_files`, the values are names of files."""

    argv: tuple[str, ...] = ()
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_files: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str | None = None
    url_file: str | None = None
    header_files: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One server of the file: what it becomes, under which name, and what a reader should know.

    `reason` says why there is no `provider`, where there is none.
    """

    name: str
    source: str
    fate: Fate
    provider: Provider | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that an import writes, but for the contracts."""

    source: Path
    form: Form
    servers: tuple[Planned, ...]
    secrets: tuple[Secret, ...]

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The servers that are taken over, by the names that they get."""
        return {server.name: server.provider for server in self.servers if server.provider is not None}


@dataclass(frozen=True, slots=True)
class EnvFile:
    """A file of variables, and the first server that names it."""

    place: TablePath
    path: Path


def env_files(document: Document, around: Surroundings, skipped: frozenset[str]) -> Mapping[str, EnvFile]:
    """Return the files of variables that enabled servers name, by how the document writes them."""
    found: dict[str, EnvFile] = {}
    for raw in document.servers:
        if raw.name in skipped:
            continue
        server = read_server(raw)
        if isinstance(server, Server) and server.enabled and server.env_file is not None:
            text = expand(server.env_file, around, {}).text
            path = around.folder / _home(text, around)
            found.setdefault(server.env_file, EnvFile(raw.place, path))
    return found


def plan(
    document: Document, around: Surroundings, variables: Mapping[str, str], skipped: frozenset[str]
) -> Plan:
    """Return what becomes of the servers; `variables` has the content of each of `env_files`.

    Those in `skipped`, by the names in the document, are left out as a person said so. Raises `SourceInvalid`
    with every mistake of the document.
    """
    planner = _Planner(around, variables)
    unknown = skipped - {raw.name for raw in document.servers}
    problems = [*document.problems]
    problems += [
        Problem(table=(), key=None, message=f"--skip {name}: there is no server of that name")
        for name in sorted(unknown)
    ]
    for raw in document.servers:
        if raw.name in skipped:
            continue
        server = read_server(raw)
        if isinstance(server, Server):
            problems.extend(planner.add(server))
        else:
            problems.extend(server)
    if problems:
        raise SourceInvalid(document.path, problems)
    return Plan(
        source=document.path,
        form=document.form,
        servers=tuple(planner.servers),
        secrets=tuple(planner.secrets.values()),
    )


class _Planner:
    """Collects what the servers become, so that no two names are alike."""

    def __init__(self, around: Surroundings, variables: Mapping[str, str]) -> None:
        self._around = around
        self._variables = variables
        self.servers: list[Planned] = []
        self.secrets: dict[str, Secret] = {}
        self._names: set[str] = set()

    def add(self, server: Server) -> tuple[Problem, ...]:
        """Plan one more server, or return what is wrong with it."""
        name = provider_name(server.raw.name, self._names)
        fate, reason = _fate(server)
        draft = _Draft(server, name, self._around, self.secrets)
        provider = None
        if fate == "provider":
            provider = draft.provider(self._variables)
            if draft.problems:
                return tuple(draft.problems)
        self._names.add(name)
        self.secrets.update(draft.secrets)
        self.servers.append(
            Planned(
                name=name,
                source=server.raw.name,
                fate=fate,
                provider=provider,
                reason=reason,
                notes=(*server.notes, *draft.notes) if provider else (),
            )
        )
        return ()


def _fate(server: Server) -> tuple[Fate, str]:
    if server.words and os.path.basename(server.words[0]) == _OWN_PROGRAM and "mcp" in server.words[1:]:  # noqa: PTH119 a word, no path of ours
        return "own", "it is effectd itself"
    if not server.enabled:
        return "disabled", "it is switched off in the client's file"
    match server.transport:
        case "sse":
            return "left_out", (
                "it speaks the older transport HTTP+SSE, which effectd does not: many servers have another "
                "address for Streamable HTTP, often /mcp in place of /sse"
            )
        case "other":
            return "left_out", "its type is none that effectd speaks: stdio and Streamable HTTP"
        case "none":
            return "left_out", "it has neither a command nor an address: the client's extensions start it"
        case _:
            return "provider", ""


class _Draft:
    """One server on its way to a provider: its placeholders filled, its secrets set aside."""

    def __init__(self, server: Server, name: str, around: Surroundings, taken: Mapping[str, Secret]) -> None:
        self._server = server
        self._name = name
        self._around = around
        self._taken = taken
        self.secrets: dict[str, Secret] = {}
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def provider(self, variables: Mapping[str, str]) -> Provider:
        """Return what the configuration says; it counts where there are no `problems`."""
        return self._started(variables) if self._server.transport == "stdio" else self._reached()

    # ------------------------------------------------------------------ started

    def _started(self, variables: Mapping[str, str]) -> Provider:
        values = {**self._from_file(variables), **self._environment()}
        words = [self._word(position, text, values) for position, text in enumerate(self._server.words)]
        self._look_for_a_line(words[0].text)
        plain = {name: value for name, value in values.items() if is_switch(name, value)}
        files = {name: self._hide(name, value) for name, value in values.items() if name not in plain}
        argv = self._argv(words, files)
        return Provider(argv=argv, cwd=self._cwd(), env=plain, env_files=files)

    def _environment(self) -> dict[str, str]:
        return {name: self._fill(f"env.{name}", text).text for name, text in self._server.env.items()}

    def _from_file(self, variables: Mapping[str, str]) -> dict[str, str]:
        file = self._server.env_file
        return {} if file is None else read_variables(variables.get(file, ""))

    def _word(self, position: int, text: str, values: Mapping[str, str]) -> Word:
        if position == 0:
            text = _home(text, self._around)
        filled = self._fill("command" if position == 0 else f"args[{position - 1}]", text, values)
        return Word(filled.text, filled.foreign)

    def _look_for_a_line(self, program: str) -> None:
        """Find a command line where a program should be: it would be looked for as one of that name.

        A path may have spaces in it. Words that begin like options seldom stand in one.
        """
        first, *rest = program.split() or [""]
        if rest and "/" not in first:
            self._wrong("command", f"it is {_IN_ONE_WORD}")
        elif any(word.startswith("-") for word in rest):
            self.notes.append(f"if its command is not the path of a program, it is {_IN_ONE_WORD}")

    def _argv(self, words: list[Word], files: dict[str, str]) -> tuple[str, ...]:
        """Return the command line; with secrets in it, one of a shell that takes them from variables."""
        cut = parts(words)
        if not any(isinstance(part, Hidden) for word in cut for part in word):
            return tuple(word.text for word in words)
        self.notes.append(
            "its command line has secrets: a shell puts them there from variables, and other programs of the "
            "same user can see them, as before"
        )
        return ("sh", "-c", " ".join(["exec", *(self._shell_word(word, files) for word in cut)]))

    def _shell_word(self, word: tuple[Part, ...], files: dict[str, str]) -> str:
        text = ""
        for part in word:
            if isinstance(part, Hidden):
                number = sum(name.startswith(WORD_VARIABLE) for name in files) + 1
                variable = f"{WORD_VARIABLE}_{number}"
                files[variable] = self._hide(variable, part.text)
                text += f'"${variable}"'
            else:
                text += shlex.quote(part.text)
        return text

    def _cwd(self) -> str | None:
        if self._server.cwd is None:
            return str(self._around.folder) if self._around.in_project else None
        text = _home(self._fill("cwd", self._server.cwd).text, self._around)
        if not text.isprintable():
            self._wrong("cwd", "a printable path is needed")
        return os.path.normpath(self._around.folder / text)

    # ------------------------------------------------------------------ reached

    def _reached(self) -> Provider:
        filled = self._fill("url", self._server.url)
        url, authorization = self._without_user(filled.text)
        if not self._is_address(url):
            self._wrong("url", "an address is needed that begins with http:// or https://")
            return Provider()
        headers = {name: self._hide(name, value) for name, value in self._headers(authorization).items()}
        if filled.foreign or url_is_secret(url) or len(url) > _URL_CHARS_MAX:
            return Provider(url_file=self._hide("url", url), header_files=headers)
        return Provider(url=url, header_files=headers)

    def _without_user(self, url: str) -> tuple[str, str | None]:
        """Return the address without user, password and fragment, and the header that says the same."""
        address = _split(url)
        if address is None:
            return url, None
        user, at, host = address.netloc.rpartition("@")
        plain = address._replace(netloc=host, fragment="").geturl()
        if not at:
            return plain, None
        said = base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
        return plain, f"Basic {said}"

    def _is_address(self, url: str) -> bool:
        address = _split(url)
        if address is None or address.scheme not in {"http", "https"} or not address.hostname:
            return False
        return url.isprintable() and " " not in url

    def _headers(self, authorization: str | None) -> dict[str, str]:
        found = {} if authorization is None else {"authorization": ("Authorization", authorization)}
        for name, text in self._server.headers.items():
            if name.lower() in _PROTOCOLS or name.lower().startswith("mcp-"):
                continue
            value = self._fill(f"headers.{name}", text).text
            wrong = wrong_name(name) or wrong_value(value) or (None if value else "it is empty")
            if wrong is not None and not self._has_missing(f"headers.{name}"):
                self._wrong(f"headers.{name}", wrong)
            found[name.lower()] = (name, value)
        return dict(found.values())

    # ------------------------------------------------------------------ both

    def _fill(self, key: str, text: str, own: Mapping[str, str] | None = None) -> Expanded:
        filled = expand(text, self._around, own or {})
        for missing in filled.missing:
            self._wrong(key, missing)
        return filled

    def _has_missing(self, key: str) -> bool:
        return any(problem.key == key for problem in self.problems)

    def _hide(self, key: str, value: str) -> str:
        if len(value.encode()) > _SECRET_BYTES_MAX:
            self._wrong(key, f"it has more than {_SECRET_BYTES_MAX:,} bytes")
        name = file_name(self._name, key, {*self._taken, *self.secrets})
        self.secrets[name] = Secret(name=name, value=value)
        return name

    def _wrong(self, key: str, message: str) -> None:
        self.problems.append(Problem(table=self._server.raw.place, key=key, message=message))


_IN_ONE_WORD: Final = (
    "a whole command line in one string, and would be looked for as one program of that name: write the "
    'program alone, "command": "npx", and the rest word by word, "args": ["-y", "…"]'
)
_PROTOCOLS: Final = frozenset({"accept", "content-type"})
"""Headers that MCP itself sends; a client that is told others sends those all the same."""
_OF_PROJECTS: Final = frozenset({".mcp.json", "opencode.json", "opencode.jsonc"})
"""Files that clients look for in the folder of a project itself."""
_SECRET_BYTES_MAX: Final = 65_535
"""What a file may hold, but for the newline behind it."""
_URL_CHARS_MAX: Final = 4_096


def _split(url: str) -> SplitResult | None:
    try:
        address = urlsplit(url)
        return address if address.port != 0 else None
    except ValueError:
        return None


def _home(text: str, around: Surroundings) -> str:
    """A folder of one's own, as some clients write it."""
    return str(around.home / text[2:]) if text.startswith("~/") else text


def project(path: Path, home: Path) -> Path | None:
    """Return the folder of the project that a client's file at the absolute `path` belongs to, if it does."""
    folder = path.parent
    if path.name in _OF_PROJECTS:
        return folder
    return folder.parent if folder.name.startswith(".") and folder.parent != home else None
