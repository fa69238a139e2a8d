"""The parsed TOML document before it is valid: its tables, and what can be saved of a wrong one.

Part of `driver.config`; imports its models. A document with mistakes is still checked as far as it goes, so
that one look finds them all: `salvage` builds the models without their checks, and leaves out each key that
is wrong.
"""

from collections.abc import Collection, Mapping
from typing import Final, cast

from driver.config.errors import TablePath
from driver.config.models import (
    Config,
    ControlTable,
    DriverTable,
    GatewayTable,
    JournalTable,
    LogTable,
    SupervisorTable,
)
from driver.config.providers import (
    CommandProviderTable,
    CommandToolTable,
    CommonProviderTable,
    CompensateTable,
    HttpProviderTable,
    HttpToolTable,
    McpProviderTable,
    ProbeTable,
    ToolTable,
)
from driver.config.table import Table

Document = Mapping[str, object]

_DAEMON: Final[Mapping[str, type[Table]]] = {
    "driver": DriverTable,
    "control": ControlTable,
    "journal": JournalTable,
    "gateway": GatewayTable,
    "log": LogTable,
    "supervisor": SupervisorTable,
}
_PROVIDERS: Final[Mapping[object, type[CommonProviderTable]]] = {
    "mcp": McpProviderTable,
    "command": CommandProviderTable,
    "http": HttpProviderTable,
}
_TOOLS: Final[Mapping[object, type[ToolTable]]] = {
    "mcp": ToolTable,
    "command": CommandToolTable,
    "http": HttpToolTable,
}
_WITHIN_TOOL: Final[Mapping[str, type[Table]]] = {"probe": ProbeTable, "compensate": CompensateTable}

KINDS: Final = tuple(str(kind) for kind in _PROVIDERS)


def model_of(path: TablePath, document: Document) -> type[Table] | None:
    """Return the model of the table at `path`, None where the contract has none."""
    match path:
        case ():
            return Config
        case (name,):
            return _DAEMON.get(name)
        case ("providers", provider):
            return _PROVIDERS.get(_kind(document, provider))
        case ("providers", provider, "tools", _):
            return _TOOLS.get(_kind(document, provider))
        case ("providers", _, "tools", _, name):
            return _WITHIN_TOOL.get(name)
        case _:
            return None


def _kind(document: Document, provider: str) -> object:
    kind = _mapping(_mapping(document.get("providers")).get(provider)).get("kind")
    return kind if isinstance(kind, str) else None


def _mapping(value: object) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}


def salvage(document: Document, faults: Collection[TablePath]) -> Config:
    """Return what is right in `document`: a configuration without the keys at `faults`, which is not whole.

    A key that is wrong, or missing although it is required, is no attribute of its table: touching it raises
    AttributeError. Paths are still as they were written.
    """
    return cast("Config", _salvage((), document, document, frozenset(faults)))


def _salvage(path: TablePath, table: Document, document: Document, faults: frozenset[TablePath]) -> Table:
    model = model_of(path, document)
    assert model is not None
    wrong = {fault[len(path)] for fault in faults if fault[:-1] == path}
    values: dict[str, object] = {}
    for key, value in table.items():
        if key not in wrong:
            values[key] = _salvage_value((*path, key), value, document, faults)
    partial = model.model_construct(None, **values)
    for name, field in model.model_fields.items():
        if (field.alias or name) in wrong:
            vars(partial).pop(name, None)
    return partial


def _salvage_value(
    path: TablePath, value: object, document: Document, faults: frozenset[TablePath]
) -> object:
    """A table, a table of tables, or a plain value as it is."""
    if not isinstance(value, dict):
        return value
    table = _mapping(cast("object", value))
    if model_of(path, document):
        return _salvage(path, table, document, faults)
    if path[-1] in {"providers", "tools"}:
        return {
            name: _salvage((*path, name), _mapping(item), document, faults)
            for name, item in table.items()
            if (*path, name) not in faults and model_of((*path, name), document)
        }
    return table
