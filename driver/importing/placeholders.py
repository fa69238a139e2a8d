"""`${…}` in a client's file, and what stands for it when the file is imported.

Part of `driver.importing`, pure: imports nothing of ours.

    ${NAME}  ${env:NAME}  {env:NAME}  $NAME (as a whole value)    a variable of the environment
    ${NAME:-text}                                                  the same, or else the text
    ${input:ID}                  what the client asks a person for: here the variable `input_variable(ID)`
    ${workspaceFolder} and such  folders
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\$\{(?P<name>[^{}$]*)\}|\{(?P<curly>(?:env|file):[^{}$]*)\}")
_WHOLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_WITH_DEFAULT: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*):-(.*)", re.DOTALL)

_KNOWN_TO_ALL: Final = frozenset({"HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"})
"""Variables that hold no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What placeholders may stand for.

    `folder` is the project that the file belongs to (`in_project`), or else the folder that it is in.
    """

    variables: Mapping[str, str] = field(repr=False)
    folder: Path
    in_project: bool = False
    home: Path
    inputs: Mapping[str, str]
    """What the client would ask for: why, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A text without placeholders. `missing` says, for each that nothing stands for, what to do."""

    text: str = field(repr=False)
    foreign: bool
    """Whether a part of it came from a variable or a person, and is a secret for all we know."""
    missing: tuple[str, ...] = ()


def input_variable(name: str) -> str:
    """Return the variable of the environment that stands for what a client would ask for."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_") or "INPUT"


def expand(text: str, around: Surroundings, own: Mapping[str, str]) -> Expanded:
    """Return `text` with what stands for its placeholders; `own` are the server's own variables."""
    foreign = False
    missing: list[str] = []

    def fill(name: str) -> str:
        nonlocal foreign
        if (folder := _folders(around).get(name)) is not None:
            return folder
        found = _value(name, around, own)
        foreign = foreign or (found is not None and name.removeprefix("env:") not in _KNOWN_TO_ALL)
        found = _default(name) if found is None else found
        if found is None:
            missing.append(_what_to_do(name, around))
        return found or ""

    if whole := _WHOLE.fullmatch(text):
        filled = fill(whole[1])
    else:
        filled = _PLACEHOLDER.sub(lambda found: fill(found["name"] or found["curly"] or ""), text)
    return Expanded(text=filled, foreign=foreign, missing=tuple(dict.fromkeys(missing)))


def _folders(around: Surroundings) -> Mapping[str, str]:
    folder = str(around.folder)
    return {
        "workspaceFolder": folder,
        "workspaceRoot": folder,
        "cwd": folder,
        "workspaceFolderBasename": around.folder.name,
        "userHome": str(around.home),
        "pathSeparator": "/",
        "/": "/",
    }


def _value(name: str, around: Surroundings, own: Mapping[str, str]) -> str | None:
    """What a variable holds that `name` asks for; an empty one is none where there is a default."""
    if name.startswith("input:"):
        return around.variables.get(input_variable(name.removeprefix("input:")))
    if match := _NAME.fullmatch(name):
        return own.get(match[1], around.variables.get(match[1]))
    if match := _WITH_DEFAULT.fullmatch(name):
        return own.get(match[1]) or around.variables.get(match[1]) or None
    return None


def _default(name: str) -> str | None:
    match = _WITH_DEFAULT.fullmatch(name)
    return None if match is None else match[2]


def _what_to_do(name: str, around: Surroundings) -> str:
    if name.startswith("input:"):
        asked = name.removeprefix("input:")
        why = around.inputs.get(asked)
        called = f" ({why})" if why else ""
        return (
            f"the client would ask for {asked!r}{called}: set {input_variable(asked)} in the environment, "
            "and import again"
        )
    if match := _NAME.fullmatch(name):
        return f"{match[1]} is not set: set it in the environment, and import again"
    return f"nothing is known that stands for ${{{name}}}: write in its place what it means"
