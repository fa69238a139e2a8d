"""JSON Schema of a server's making, checked so that no schema and no value can hang or crash the daemon.

Part of `driver.providers.mcp`; imports its `jsonrpc` and the store's JSON.

A schema comes from outside, and is not trusted: references to other places are not followed, regular
expressions are not run (one that backtracks would stop the whole process, and nothing can interrupt it), and
a validation is given up after `STEPS_MAX` steps. Whatever cannot be decided is let through: the server is the
judge in the end.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Final, TypeAlias, cast

import structlog
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for  # pyright: ignore[reportUnknownVariableType]
from referencing.jsonschema import EMPTY_REGISTRY

from driver.providers.mcp.jsonrpc import write_message
from store.records import JsonValue

STEPS_MAX: Final = 10_000
"""Keywords looked at in one validation: an honest one takes a few hundred, these a tenth of a second."""
SCHEMA_BYTES_MAX: Final = 65_536
"""A larger schema is not used: to hold one of this size against its meta-schema takes a tenth of a second."""
UNIQUE_ITEMS_MAX: Final = 256
"""`uniqueItems` may compare each item with each other; longer arrays are not looked at."""
PROBLEM_CHARS_MAX: Final = 500
"""What is said about a value that does not fit."""

Keyword: TypeAlias = Callable[..., Iterable[ValidationError] | None]
"""A keyword's check, of the validator, the keyword's value, the instance, and the schema around it."""
_INSTANCE: Final = 2
_SCHEMA: Final = 3

_PLAIN: Final = frozenset({"type", "title", "description", "default", "examples"})
"""Keywords of which only the first decides anything."""

_QUOTES_NO_VALUE: Final = frozenset({"required", "additionalProperties", "dependentRequired"})
"""Keywords whose messages name properties, and never quote what stands in them."""

log: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(__name__)


class _TooManySteps(Exception):
    """The validation is given up."""


class Schema:
    """One schema as a server served it. It is compiled when it is first needed."""

    def __init__(self, definition: JsonValue, *, where: str) -> None:
        self._definition = definition
        self._where = where
        self._steps = 0

    def problem(self, value: JsonValue) -> str | None:
        """Return what is wrong with `value`; None where it fits, or where the schema itself is of no use.

        The text names places and rules, and quotes nothing of the value: it may be secret.
        """
        validator = self._validator
        if validator is None:
            return None
        self._steps = 0
        try:
            error = next(iter(validator.iter_errors(value)), None)
        except Exception as trouble:  # noqa: BLE001 - whatever a foreign schema trips over is the schema's fault
            self._unusable(type(trouble).__name__)
            return None
        return None if error is None else _described(error)

    @cached_property
    def _validator(self) -> Validator | None:
        definition = self._definition
        if not isinstance(definition, dict) or len(write_message(definition)) > SCHEMA_BYTES_MAX:
            self._unusable(f"no object, or larger than {SCHEMA_BYTES_MAX} bytes")
            return None
        try:
            dialect = validator_for(definition, default=Draft202012Validator)
            dialect.check_schema(definition)
            bounded = {name: self._counted(check) for name, check in _harmless(dialect.VALIDATORS).items()}
            make = cast("Callable[..., Validator]", extend(dialect, bounded))  # type: ignore[no-untyped-call]
            return make(_of_one_dialect(definition), registry=EMPTY_REGISTRY)
        except SchemaError as trouble:
            self._unusable(f"not valid: {trouble.message[:PROBLEM_CHARS_MAX]}")
        except Exception as trouble:  # noqa: BLE001 - as above
            self._unusable(type(trouble).__name__)
        return None

    def _counted(self, check: Keyword) -> Keyword:
        def counted(*of: object) -> Iterable[ValidationError] | None:
            self._steps += 1
            if self._steps > STEPS_MAX:
                raise _TooManySteps
            return check(*of)

        return counted

    def _unusable(self, why: str) -> None:
        log.warning("server_schema_not_used", schema=self._where, why=why)


def _harmless(checks: Mapping[str, Keyword]) -> dict[str, Keyword]:
    """The dialect's checks without those that run a pattern or may take for ever."""

    def skip(*_of: object) -> None:
        return None

    def additional(*of: object) -> Iterable[ValidationError] | None:
        # which properties are additional depends on patterns
        patterns = "patternProperties" in cast("dict[str, object]", of[_SCHEMA])
        return None if patterns else checks["additionalProperties"](*of)

    def unique(*of: object) -> Iterable[ValidationError] | None:
        instance = of[_INSTANCE]
        too_long = isinstance(instance, list) and len(cast("list[object]", instance)) > UNIQUE_ITEMS_MAX
        return None if too_long else checks["uniqueItems"](*of)

    def properties(
        validator: Validator, wanted: dict[str, object], instance: object, schema: object
    ) -> Iterable[ValidationError] | None:
        if not isinstance(instance, dict):
            return None
        left = {
            name: wanted[name]
            for name, value in cast("dict[str, JsonValue]", instance).items()
            if name in wanted and not _plainly_fits(validator, wanted[name], value)
        }
        return checks["properties"](validator, left, instance, schema) if left else None

    changed: dict[str, Keyword] = {
        "pattern": skip,
        "patternProperties": skip,
        "unevaluatedProperties": skip,
        "additionalProperties": additional,
        "uniqueItems": unique,
        "properties": properties,
    }
    return {**checks, **{name: check for name, check in changed.items() if name in checks}}


def _plainly_fits(validator: Validator, schema: object, value: JsonValue) -> bool:
    """Whether a schema asks for one type and nothing else, as most do, and the value is of that type.

    Where it is so the library need not make a validator of that part, which is most of its work.
    """
    if not isinstance(schema, dict):
        return False
    wanted = cast("dict[str, object]", schema)
    kind = wanted.get("type")
    return isinstance(kind, str) and _PLAIN.issuperset(wanted) and validator.is_type(value, kind)


def _of_one_dialect(value: JsonValue) -> JsonValue:
    """The same schema without `$schema`, with which a part of it could choose checks that are not bounded."""
    if isinstance(value, dict):
        return {
            name: _of_one_dialect(part)
            for name, part in value.items()
            if name != "$schema" or not isinstance(part, str)
        }
    return [_of_one_dialect(part) for part in value] if isinstance(value, list) else value


def _described(error: ValidationError) -> str:
    rule = str(error.validator)
    if rule in _QUOTES_NO_VALUE:
        detail = error.message
    elif rule == "type":
        detail = f"is not of type {error.validator_value}"
    else:
        detail = f"breaks the rule {rule!r}"
    return f"{error.json_path} {detail}"[:PROBLEM_CHARS_MAX]
