"""Reads the one TOML file, and returns a configuration that is valid as a whole, or every mistake in it.

Part of `driver.config`; imports its models. Relative paths in the file (`state_dir`, every `*_file`, `cwd`,
...) count from the folder that the file is in, never from where the daemon was started; a path's `~` is not
expanded.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from driver.config.document import Document, salvage
from driver.config.errors import NO_FILE, ConfigInvalid, ConfigUnreadable, Problem
from driver.config.fields import INTEGER_MAX
from driver.config.mistakes import mistakes
from driver.config.models import Config
from driver.config.rules import contradictions

FILE_BYTES_MAX: Final = 1_048_576
"""Thousands of tools fit in this; a device that never ends does not."""
DIGITS_MAX: Final = 4_300
"""CPython's own limit for decimal text (`sys.int_info`)."""
_LONG_NUMBER: Final = re.compile(rf"(?<![0-9A-Za-z_])[+-]?[0-9](?:_?[0-9]){{{DIGITS_MAX},}}")


def load(path: Path) -> Config:
    """Return the configuration in the file at `path`, with absolute paths. Blocks while it reads the file.

    Raises `ConfigUnreadable` where there is no such text file, and `ConfigInvalid`, with every mistake,
    where it breaks the contract.
    """
    return parse(_read(path), path)


def parse(text: str, path: Path) -> Config:
    """Return the configuration that `text` is.

    `path` names it in errors, and its folder anchors relative paths. Raises `ConfigInvalid`.
    """
    return validate(_document(text, path), path)


def validate(document: Document, path: Path) -> Config:
    """Return the configuration that the parsed `document` is. Raises `ConfigInvalid`."""
    problems: list[Problem] = []
    try:
        config = Config.model_validate(document, context={"folder": path.absolute().parent})
    except ValidationError as error:
        found = list(mistakes(error, document))
        problems.extend(mistake.problem for mistake in found)
        config = salvage(document, {mistake.fault for mistake in found})
    problems.extend(contradictions(config, whole=not problems))
    if problems:
        raise ConfigInvalid(path, sorted(problems, key=lambda problem: problem.table))
    return config


def _document(text: str, path: Path) -> Document:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigInvalid(path, [_not_toml("arrays or tables are nested too deeply")]) from None
    except ValueError as error:
        long = None if isinstance(error, tomllib.TOMLDecodeError) else _too_long(text)
        raise ConfigInvalid(path, [long or _not_toml(str(error))]) from error


def _not_toml(detail: str) -> Problem:
    return Problem(table=(), key=None, message=f"not TOML: {detail}")


def _too_long(text: str) -> Problem | None:
    """Return the mistake that Python's TOML reader calls its own limit: a number of very many digits."""
    found = _LONG_NUMBER.search(text)
    if found is None:
        return None
    line = text.count("\n", 0, found.start()) + 1
    allowed = f"more than {DIGITS_MAX:,} digits; allowed: at most {INTEGER_MAX:,}"
    return Problem(table=(), key=None, message=f"line {line}: a number of {allowed}")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigUnreadable(path, NO_FILE) from None
    except IsADirectoryError:
        raise ConfigUnreadable(path, "is a folder; name the TOML file in it with --config FILE") from None
    except PermissionError:
        raise ConfigUnreadable(
            path, f"may not be read by user {os.geteuid()}; change its mode or owner, or run as its owner"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigUnreadable(path, f"cannot be read: {error}; name another with --config FILE") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigUnreadable(path, f"is larger than {FILE_BYTES_MAX:,} bytes, which no configuration is")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigUnreadable(path, f"is not UTF-8 text (byte {error.start:,}); save it as UTF-8") from error
