"""The kinds of values that keys of the configuration have, each with a check that says what is allowed.

Part of `driver.config`; imports the names and limits of `driver.core`, and its expressions.

Each check raises pydantic's error of type `WANTED`, whose text completes "allowed: ...". No check repeats the
value: what was found is written by `driver.config.load`, which knows which values may be shown.
"""

import ipaddress
import math
import os.path
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import jmespath
from jmespath.functions import Functions
from pydantic import BeforeValidator, JsonValue, Strict, ValidationInfo
from pydantic_core import PydanticCustomError

from driver.core.contracts import InvalidKeyCarrier, parse_key_carrier
from driver.core.expressions import Expression, ExpressionError
from driver.core.fields import TEXT_MAX
from driver.core.headers import METHODS, wrong_name, wrong_value

WANTED: Final = "wanted"
"""The type of all errors raised here."""
HIDDEN: Final = "wanted_hidden"
"""The same, for a value that may hold a secret and must not be shown."""

DURATION_S_MAX: Final = 10 * 365 * 86_400
"""Ten years: far beyond any use, and far within what a date can be computed with."""
DAYS_MAX: Final = 100 * 365
INTEGER_MAX: Final = 2**63 - 1
"""What SQLite can hold."""
TEXT_CHARS_MAX: Final = 4_096
FRAME_BYTES_MIN: Final = 1_024
"""An envelope with its identities takes about half of this."""

_PROVIDER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
_REDACT_PATH: Final = re.compile(r"(?:arguments|result)(?:\.[^.]+)*")
_FUNCTIONS: Final = frozenset(cast("dict[str, object]", Functions.FUNCTION_TABLE))


def wanted(allowed: str, *, hide: bool = False) -> PydanticCustomError:
    """Return the error that says what is allowed instead; `hide` keeps the value found out of the text."""
    return PydanticCustomError(HIDDEN if hide else WANTED, "{allowed}", {"allowed": allowed})


def _number(*, above: float, maximum: float, unit: str, or_zero: bool = False) -> Callable[[object], float]:
    allowed = f"a finite number of {unit} above {above:g}{', or 0' if or_zero else ''}, at most {maximum:,}"

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wanted(allowed)
        in_range = above < value <= maximum or (or_zero and value == 0)
        if not in_range or not math.isfinite(value):
            raise wanted(allowed)
        return float(value)

    return check


def _integer(minimum: int, maximum: int = INTEGER_MAX, unit: str = "") -> Callable[[object], int]:
    allowed = f"a whole number{f' of {unit}' if unit else ''} from {minimum:,}"
    if maximum != INTEGER_MAX:
        allowed += f" to {maximum:,}"

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise wanted(allowed)
        return value

    return check


def _printable(value: object, allowed: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_CHARS_MAX:
        raise wanted(allowed)
    if not value.isprintable():
        raise wanted(f"{allowed}, without control characters")
    return value


def _text(value: object) -> str:
    return _printable(value, f"a string of 1 to {TEXT_CHARS_MAX:,} characters")


def _driver_id(value: object) -> str:
    """The `driver_id` of `hello` is a name of the protocol: a plane refuses a longer one."""
    allowed = f"a string of 1 to {TEXT_MAX:,} characters"
    text = _printable(value, allowed)
    if len(text) > TEXT_MAX:
        raise wanted(allowed)
    return text


def _argument(value: object) -> str:
    """One word of a command line: anything that the kernel takes."""
    if not isinstance(value, str) or "\0" in value:
        raise wanted("a string without zero bytes")
    return value


def _variable(value: object) -> str:
    if not isinstance(value, str) or not value or "=" in value or "\0" in value:
        raise wanted("the name of an environment variable: a string without '=' and zero bytes")
    return value


def _path(value: object, info: ValidationInfo) -> Path:
    """Relative paths count from the folder of the configuration file, which the loader hands in."""
    text = _printable(
        str(value) if isinstance(value, Path) else value, "the path of a file or folder, as a string"
    )
    if text.startswith("~"):
        raise wanted("an absolute path, or one relative to the configuration file; ~ is not expanded")
    folder = cast("Path", info.context["folder"]) if info.context else Path()
    return Path(os.path.normpath(folder / text))


def _provider_name(value: object) -> str:
    if not isinstance(value, str) or not _PROVIDER_NAME.fullmatch(value):
        raise wanted(
            "a provider's name of lower-case letters, digits and hyphens, that begins with no hyphen"
        )
    return value


def _tool_name(value: object) -> str:
    return _printable(value, "a tool's name, as its provider lists it")


def _key_carrier(value: object) -> str:
    allowed = '"none", "meta", "argument:NAME", "header:NAME" or "sep3182"'
    if not isinstance(value, str) or not value.isprintable():
        raise wanted(allowed)
    try:
        parse_key_carrier(value)
    except InvalidKeyCarrier as error:
        raise wanted(allowed) from error
    return value


def _redact_path(value: object) -> str:
    if not isinstance(value, str) or not _REDACT_PATH.fullmatch(value):
        raise wanted('a dotted path such as "arguments.body" or "result.structuredContent.items.*.email"')
    return value


def _expression(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TEXT_CHARS_MAX:
        raise wanted(f"a JMESPath expression of 1 to {TEXT_CHARS_MAX:,} characters")
    try:
        Expression(value)
        functions = set(_functions_of(jmespath.compile(value).parsed))
    except (ExpressionError, ValueError, RecursionError) as error:
        raise wanted(f"a JMESPath expression; this one {_first_line(error)}") from error
    if unknown := sorted(functions - _FUNCTIONS):
        raise wanted(f"a JMESPath expression; there is no function {', '.join(unknown)}()")
    return value


def _first_line(error: Exception) -> str:
    """JMESPath repeats the expression on the lines that follow."""
    detail = error.detail if isinstance(error, ExpressionError) else "cannot be compiled"
    return detail.partition("\n")[0].removesuffix(", for expression:").removesuffix(":")


def _functions_of(tree: object) -> Iterator[str]:
    if not isinstance(tree, dict):
        return
    node = cast("dict[str, object]", tree)
    if node.get("type") == "function_expression":
        yield str(node["value"])
    for child in cast("list[object]", node.get("children", [])):
        yield from _functions_of(child)


def _template(value: object) -> JsonValue:
    """Any JSON value; a string in it that begins with `=` is an expression."""
    match value:
        case str() if value.startswith("="):
            return f"={_expression(value[1:])}"
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_template(item) for item in cast("list[object]", value)]
        case dict():
            return {key: _template(item) for key, item in cast("dict[str, object]", value).items()}
        case _:
            raise wanted("strings, numbers, true, false, and arrays or tables of them")


def _template_text(value: object) -> str:
    text = _argument(value)
    return f"={_expression(text[1:])}" if text.startswith("=") else text


def _method(value: object) -> str:
    allowed = f'{", ".join(METHODS)}, or one expression "=EXPR" that yields one of them'
    if isinstance(value, str) and value.startswith("="):
        return _template_text(value)
    if value not in METHODS:
        raise wanted(allowed)
    return str(value)


def _request_path(value: object) -> str:
    text = _template_text(value)
    if text.startswith("="):
        return text
    if "?" in text or "#" in text:
        raise wanted("a path without ? and #: parameters stand in query")
    if {".", ".."} & set(text.split("/")):
        raise wanted("a path without . and .. between its slashes")
    return text


def _header_name(value: object) -> str:
    text = _argument(value)
    if wrong := wrong_name(text):
        raise wanted(f"the name of a header that a tool may set; this one is refused: {wrong}")
    return text


def _header_value(value: object) -> str:
    text = _template_text(value)
    if not text.startswith("=") and (wrong := wrong_value(text)):
        raise wanted(f"a header's value, or one expression that yields it; {wrong}", hide=True)
    return text


def _base_url(value: object) -> str:
    text = _url("http", "https")(value)
    if "?" in text:
        raise wanted("a URL without a query: parameters stand in a tool's query", hide=True)
    return text


def _template_words(value: object) -> str | tuple[str, ...]:
    """A list of words, or one expression that yields the list; never a shell string."""
    if isinstance(value, str) and value.startswith("="):
        return _template_text(value)
    if isinstance(value, list) and value:
        return tuple(_template_text(word) for word in cast("list[object]", value))
    raise wanted('an array of strings, or one expression "=EXPR" that yields it; never a shell string')


def _url(*schemes: str) -> Callable[[object], str]:
    allowed = f"a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}, as a string"

    def check(value: object) -> str:
        text = _printable(value, allowed)
        try:
            parts = urlsplit(text)
            valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError as error:
            raise wanted(allowed, hide=True) from error
        if parts.username is not None or parts.password is not None:
            raise wanted("a URL without user and password: secrets stand in files only", hide=True)
        if not valid or parts.fragment or " " in text:
            raise wanted(allowed)
        return parts.scheme + text[len(parts.scheme) :]  # in lower case, as it is compared from here on

    return check


def is_loopback(url: str) -> bool:
    """True where the host of the valid `url` is this machine: `localhost`, 127.0.0.0/8 or ::1."""
    return _is_loopback_host(urlsplit(url).hostname or "")


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(value: object) -> str:
    allowed = 'HOST:PORT, such as "127.0.0.1:8931" or "[::1]:8931", or "" for none'
    if value == "":
        return ""
    text = _printable(value, allowed)
    try:
        parts: SplitResult = urlsplit(f"//{text}")
        valid = bool(parts.hostname) and parts.port is not None and parts.netloc == text
    except ValueError as error:
        raise wanted(allowed) from error
    if not valid or "@" in text:
        raise wanted(allowed)
    return text


Item = TypeVar("Item")
Array = Annotated[tuple[Item, ...], Strict(strict=False)]
"""TOML has arrays and no tuples; the items are as strict as ever."""
Duration = Annotated[float, BeforeValidator(_number(above=0, maximum=DURATION_S_MAX, unit="seconds"))]
DurationOrZero = Annotated[
    float, BeforeValidator(_number(above=0, maximum=DURATION_S_MAX, unit="seconds", or_zero=True))
]
Days = Annotated[float, BeforeValidator(_number(above=0, maximum=DAYS_MAX, unit="days"))]
Count = Annotated[int, BeforeValidator(_integer(1))]
ByteCount = Annotated[int, BeforeValidator(_integer(1, unit="bytes"))]
FrameBytes = Annotated[int, BeforeValidator(_integer(FRAME_BYTES_MIN, unit="bytes"))]
ExitCode = Annotated[int, BeforeValidator(_integer(0, 255))]
HttpStatus = Annotated[int, BeforeValidator(_integer(100, 599))]
Text = Annotated[str, BeforeValidator(_text)]
DriverId = Annotated[str, BeforeValidator(_driver_id)]
Argument = Annotated[str, BeforeValidator(_argument)]
Variable = Annotated[str, BeforeValidator(_variable)]
FilePath = Annotated[Path, BeforeValidator(_path)]
ProviderName = Annotated[str, BeforeValidator(_provider_name)]
Tool = Annotated[str, BeforeValidator(_tool_name)]
KeyCarrierText = Annotated[str, BeforeValidator(_key_carrier)]
RedactPath = Annotated[str, BeforeValidator(_redact_path)]
ExpressionText = Annotated[str, BeforeValidator(_expression)]
Template = Annotated[JsonValue, BeforeValidator(_template)]
TemplateText = Annotated[str, BeforeValidator(_template_text)]
TemplateWords = Annotated[str | tuple[str, ...], BeforeValidator(_template_words)]
WebSocketUrl = Annotated[str, BeforeValidator(_url("ws", "wss"))]
HttpUrl = Annotated[str, BeforeValidator(_url("http", "https"))]
BaseUrl = Annotated[str, BeforeValidator(_base_url)]
Method = Annotated[str, BeforeValidator(_method)]
RequestPath = Annotated[str, BeforeValidator(_request_path)]
HeaderName = Annotated[str, BeforeValidator(_header_name)]
HeaderValue = Annotated[str, BeforeValidator(_header_value)]
ListenAddress = Annotated[str, BeforeValidator(_listen)]
