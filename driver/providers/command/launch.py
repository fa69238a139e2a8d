"""From a call to what the kernel is told: the words of the command line, and where and with what it runs.

Part of `driver.providers.command`; imports its `settings` and `errors`, and `driver.core`.

`fill` is pure; `locate` looks at the disk. A working folder is opened before it is judged, and the program
starts in what was opened: a link that is swapped in between changes nothing. No message quotes an argument.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driver.core.attempts import ToolCall
from driver.core.contracts import ArgumentKey
from driver.core.expressions import ExpressionError
from driver.core.templates import MARK, Template, scope
from driver.providers.command.errors import Refused
from driver.providers.command.settings import CommandSettings, Program
from driver.providers.environment import environment
from driver.providers.value_files import ValueFileUnusable
from store.records import JsonObject, JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A command line with its words in place. `cwd` is None where the tool names no folder."""

    program: Program
    argv: tuple[str, ...]
    cwd: str | None
    stdin: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that a start needs. Whoever has one closes it."""

    program: Program
    path: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    stdin: bytes | None
    folder: int
    """A descriptor of the working folder."""

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.folder)


def fill(settings: CommandSettings, call: ToolCall) -> Filled:
    """Return the command line of `call`. Raises `Refused`."""
    program = _program(settings, call)
    values = scope(call, _arguments(settings, call))
    stdin = _filled("stdin", program.stdin, values)
    return Filled(
        program=program,
        argv=_words(_filled("argv", program.argv, values)),
        cwd=_folder(program, values),
        stdin=None if stdin is None else _as_input(stdin),
    )


def fill_evidence(settings: CommandSettings, call: ToolCall) -> Filled:
    """Return the command line that reads what `call` changes, in the same folder. Raises `Refused`."""
    program = _program(settings, call)
    values = scope(call, _arguments(settings, call))
    words = _words(_filled("evidence", program.evidence, values))
    return Filled(program=program, argv=words, cwd=_folder(program, values), stdin=None)


def _program(settings: CommandSettings, call: ToolCall) -> Program:
    program = settings.programs.get(call.tool)
    if program is None:
        raise Refused("unknown_tool", f"provider {settings.name} declares no tool {call.tool!r}")
    return program


def _folder(program: Program, values: JsonObject) -> str | None:
    return None if program.cwd is None else _word("cwd", _filled("cwd", program.cwd, values))


def locate(settings: CommandSettings, filled: Filled) -> Launch:
    """Return what starts `filled`. Blocks on the disk: call it in a worker thread. Raises `Refused`."""
    folder = _open_folder(settings, filled.cwd)
    try:
        env = environment(settings.env, settings.env_files)
        return Launch(
            program=filled.program,
            path=path_of(filled.argv[0], folder, env),
            argv=filled.argv,
            env=env,
            stdin=filled.stdin,
            folder=folder,
        )
    except ValueFileUnusable as error:
        os.close(folder)
        raise Refused("spawn_failed", str(error)) from error
    except BaseException:
        os.close(folder)
        raise


def examine(settings: CommandSettings, program: Program) -> None:
    """Look whether calls of `program` find what they need, as far as that is known before there is one.

    Blocks on the disk. Raises `Refused`.
    """
    named = None if program.cwd is None else _literal(program.cwd.source)
    folder = _open_folder(settings, named)
    try:
        env = environment(settings.env, settings.env_files)
        words = program.argv.source
        first = _literal(words[0]) if isinstance(words, list) else None
        if first is not None and ("/" not in first or program.cwd is None or named is not None):
            path_of(first, folder, env)
    except ValueFileUnusable as error:
        raise Refused("spawn_failed", str(error)) from error
    finally:
        os.close(folder)


def _literal(part: JsonValue) -> str | None:
    """Return a part of a declaration as it stands; None where calls decide."""
    return part if isinstance(part, str) and not part.startswith(MARK) else None


def _arguments(settings: CommandSettings, call: ToolCall) -> JsonObject:
    """Return the arguments as expressions see them. Callers may not supply the one that carries the key.

    Of a call that has none, all arguments are its own.
    """
    if not isinstance(settings.key, ArgumentKey) or call.key is None:
        return call.arguments
    name = settings.key.name
    if name in call.arguments:
        message = f"the argument {name!r} carries the idempotency key: callers must leave it out"
        raise Refused("invalid_arguments", message)
    return {**call.arguments, name: call.key}


def _filled(part: str, template: Template | None, values: JsonObject) -> JsonValue:
    if template is None:
        return None
    try:
        return template.fill(values)
    except ExpressionError as error:
        # what JMESPath says of it may quote an argument
        message = f"{part}: the expression {error.text!r} does not suit these arguments"
        raise Refused("invalid_arguments", message) from None


def _words(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise Refused("invalid_arguments", "argv must be a list of strings with the program as its first")
    words = tuple(_word(f"argv[{index}]", word) for index, word in enumerate(value))
    if not words[0]:
        raise Refused("invalid_arguments", "argv[0] names no program")
    return words


def _word(part: str, value: JsonValue) -> str:
    """A value that is no string is not made one here: whoever wants that writes `to_string(...)`."""
    if value is None:
        raise Refused("invalid_arguments", f"{part} is null, as where an argument of the call is missing")
    if not isinstance(value, str) or "\0" in value:
        raise Refused("invalid_arguments", f"{part} must be a string without zero bytes")
    return value


def _as_input(value: JsonValue) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _open_folder(settings: CommandSettings, named: str | None) -> int:
    """Return a descriptor of the working folder, which lies within a root, wherever links lead."""
    path = settings.cwd / (named or "")
    try:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if named is None:
            raise Refused("spawn_failed", f"the working folder {path}: {error.strerror}") from error
        raise Refused("invalid_arguments", f"cwd: that folder cannot be used: {error.strerror}") from None
    real = _path_behind(folder)
    if any(real.is_relative_to(os.path.realpath(root)) for root in settings.roots):
        return folder
    os.close(folder)
    roots = ", ".join(str(root) for root in settings.roots)
    raise Refused("invalid_arguments", f"cwd: that folder lies outside the declared roots: {roots}")


def _path_behind(folder: int) -> Path:
    return Path(f"/proc/self/fd/{folder}").readlink()


def path_of(program: str, folder: int, env: Mapping[str, str]) -> str:
    """Return the path of the program: one with a `/` counts from the working folder, as in a shell.

    Blocks. Raises `Refused`.
    """
    wanted = str(_path_behind(folder) / program) if "/" in program else program
    found = shutil.which(wanted, path=env.get("PATH", os.defpath))
    if found is None:
        raise Refused("spawn_failed", "argv[0] names no program on its PATH that may be run")
    return found
