"""Which values a contract withholds: declared paths, compiled once, and what is left of a value without them.

Part of `driver.core`, pure: imports only `store.records`. Whoever quotes the values that were withheld is
`driver.core.scrubbing`'s; what a provider's report becomes, `driver.core.reports`'.

A path is `arguments` or `result`, and segments behind dots: a key, the index of a list in digits, or `*` for
any key or index. What it leads to, whatever that is, becomes `MARKER`; the keys on the way stay. A path that
stops at something of another shape than it expects (a text where it names a key, a list where it names no
index) withholds all of that: whoever declared it expected a secret there. Only a `*` over the keys of an
object expects nothing of each of them.

    InvalidRedactPath      a text is no such path
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from store.records import JsonObject, JsonValue

MARKER: Final = "[redacted]"
"""Stands in place of each value that is withheld."""
ANY: Final = "*"
STRUCTURED, CONTENT = "structuredContent", "content"
"""What MCP says twice: as JSON, and in words."""
PARSED, UNPARSED = "json", "text"
"""A body of HTTP: the one where it is JSON, else the other."""

Root: TypeAlias = Literal["arguments", "result"]
_ROOTS: Final[tuple[Root, ...]] = ("arguments", "result")


class InvalidRedactPath(ValueError):
    """`text` names nothing that can be withheld."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"{text!r} is no path of a value: begin with 'arguments' or 'result', and go on with keys, "
            "indexes or '*' behind dots"
        )


@dataclass(frozen=True, slots=True)
class _Node:
    """A point that paths lead through; `end`: one of them ends here."""

    end: bool = False
    inner: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])

    @property
    def names_a_key(self) -> bool:
        """Whether a path goes on here with what can only be the key of an object."""
        return any(name != ANY and not (name.isascii() and name.isdecimal()) for name in self.inner)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A path on its way: where in it a value stands, and whether it expects the value to have its shape."""

    node: _Node
    strict: bool


@dataclass(frozen=True, slots=True)
class Redacted:
    """What is left of a value, and what was withheld, as it was."""

    value: JsonValue
    withheld: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Redaction:
    """The paths that one contract withholds; two are equal where these are. Raises `InvalidRedactPath`."""

    paths: tuple[str, ...]
    _roots: dict[Root, _Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        roots: dict[Root, _Node] = {}
        for path in self.paths:
            _plant(roots, path)
        object.__setattr__(self, "_roots", roots)

    def joined(self, paths: Iterable[str]) -> "Redaction":
        """Return what withholds these paths as well."""
        more = tuple(path for path in dict.fromkeys(paths) if path not in self.paths)
        return Redaction(self.paths + more) if more else self

    @property
    def withholds_results(self) -> bool:
        """Whether anything of an answer is withheld."""
        return "result" in self._roots

    def apply(self, root: Root, value: JsonObject) -> Redacted:
        """Return `value`, the arguments or the result of a call, without what is declared.

        `value` is not changed. Its depth must be bounded.
        """
        node = self._roots.get(root)
        if node is None:
            return Redacted(value, ())
        walk = _Walk()
        kept = walk.members(value, (_Arrived(node, strict=True),))
        if root == "result":
            _withhold_texts(kept, node)
        return Redacted(kept, tuple(walk.withheld))


def redaction(paths: Iterable[str]) -> Redaction | None:
    """Return what withholds `paths`; None where there are none. Raises `InvalidRedactPath`."""
    found = tuple(dict.fromkeys(paths))
    return Redaction(found) if found else None


def covers(path: str, place: Sequence[str]) -> bool:
    """Whether `path` withholds the value at `place`, which is a root and keys below it."""
    segments = path.split(".")
    named = zip(segments, place, strict=False)
    return len(segments) <= len(place) and all(segment in (ANY, name) for segment, name in named)


def _plant(roots: dict[Root, _Node], path: str) -> None:
    root, *segments = path.split(".")
    if root not in _ROOTS or not all(segments):
        raise InvalidRedactPath(path)
    node = roots.setdefault(root, _Node())
    for segment in (segments or [ANY])[:-1]:
        node = node.inner.setdefault(segment, _Node())
    last = (segments or [ANY])[-1]
    node.inner[last] = _Node(end=True)


def _reaches(node: _Node, name: str) -> bool:
    return name in node.inner or ANY in node.inner


@dataclass(slots=True)
class _Walk:
    """One value on its way through the paths, and what they withhold of it."""

    withheld: list[JsonValue] = field(default_factory=list[JsonValue])

    def members(self, value: JsonObject, paths: tuple[_Arrived, ...]) -> JsonObject:
        return {key: self.step(key, item, paths, any_is_strict=False) for key, item in value.items()}

    def step(
        self, name: str, value: JsonValue, paths: tuple[_Arrived, ...], *, any_is_strict: bool
    ) -> JsonValue:
        """Go on at the key or index `name` with each path that names it."""
        onward = tuple(
            _Arrived(path.node.inner[key], strict=key == name or any_is_strict)
            for path in paths
            for key in {name, ANY}
            if key in path.node.inner
        )
        if any(path.node.end for path in onward):
            return self.withhold(value)
        return self.look(value, onward) if onward else value

    def look(self, value: JsonValue, paths: tuple[_Arrived, ...]) -> JsonValue:
        if isinstance(value, dict):
            return self.members(value, paths)
        if isinstance(value, list) and not any(path.strict and path.node.names_a_key for path in paths):
            return [self.step(str(at), item, paths, any_is_strict=True) for at, item in enumerate(value)]
        if value is None or not any(path.strict for path in paths):
            return value
        return self.withhold(value)

    def withhold(self, value: JsonValue) -> str:
        self.withheld.append(value)
        return MARKER


def _withhold_texts(result: JsonObject, node: _Node) -> None:
    """Take out of `result` the texts that hold once more, in another form, what is withheld."""
    if CONTENT in result and _reaches(node, STRUCTURED):
        result[CONTENT] = _without_text(result[CONTENT])
    if UNPARSED in result and _reaches(node, PARSED):
        result[UNPARSED] = MARKER


_BLOCK_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})


def _without_text(content: JsonValue) -> JsonValue:
    """Keep of MCP content blocks how many there are, and of which type."""
    if not isinstance(content, list):
        return MARKER
    return [_block(block) if isinstance(block, dict) else MARKER for block in content]


def _block(block: JsonObject) -> JsonObject:
    kind = block.get("type")
    known = isinstance(kind, str) and kind in _BLOCK_TYPES
    return {key: kind if key == "type" and known else MARKER for key in block}
