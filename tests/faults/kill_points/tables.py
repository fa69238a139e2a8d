"""What lives are configured with: the providers of the scenes, and what else a scene is about.

Part of `kill points`, and of `soak`.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.faults.kill_points.office import PATH
from tests.system.sandbox import Sandbox

PROBE: Final = {
    "tool": "find",
    "matches": "length(result.json.orders)",
    "visible_after_s": 0,
    "attempts": 3,
    "authoritative_absence": True,
}
SAME_KEY: Final = {
    "idempotent": True,
    "dedupe_horizon_s": 3_600,
    "retry": "same-key",
    "retry_attempts": 9,
    "retry_backoff_s": 0.01,
}


def shop(port: int, **tools: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of the shop, with further keys for some of its tools."""
    prefix = "providers__shop__tools__"
    made: dict[str, dict[str, Any]] = {
        "providers__shop": {
            "kind": "http",
            "base_url": f"http://127.0.0.1:{port}",
            "key": "header:Idempotency-Key",
            "late_result_s": 0.05,
        },
        f"{prefix}find": {"effect": "read", "method": "GET", "path": "/orders"},
        f"{prefix}find__query": {"marker": "=arguments.marker"},
    }
    for name in ("order", "keyed", "broken", "lost", "vain", "slow"):
        made[f"{prefix}{name}"] = {"path": f"/{name}"}
    made[f"{prefix}keyed"] |= SAME_KEY
    for name, keys in tools.items():
        made.setdefault(f"{prefix}{name}", {}).update(keys)
    for name in ("lost", "vain"):
        if not made[f"{prefix}{name}"].pop("unprobed", False):
            made[f"{prefix}{name}__probe"] = PROBE
            made[f"{prefix}{name}__probe__arguments"] = {"marker": "=key"}
    return made


def usual(_: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """The shop, and nothing else."""
    return shop(port)


def one_slot(made: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """Let one call run at a time."""
    return {**usual(made, port), "driver": {"max_inflight": 1}}


def forgetful(made: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """Prune at once what may be."""
    return {**usual(made, port), "journal": {"retention_days": 1e-9}}


COUNT: Final = """printf '{"key": "%s"}\\n' "$2" >> "$1";"""
"""One effect, as a line of the ledger: `$1` is the ledger, `$2` the key."""


def shell(made: Sandbox, _: int) -> Mapping[str, Mapping[str, Any]]:
    """Programs that count."""

    def program(script: str) -> dict[str, Any]:
        return {"argv": ["sh", "-c", COUNT + script, "sh", str(made.ledger), "=key"]}

    return {
        "providers__shell": {"kind": "command"},
        "providers__shell__tools__slow": program(" sleep 0.05"),
        "providers__shell__tools__fail": program(" exit 3"),
    }


def office(_: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """An MCP server behind a URL."""
    return {"providers__office": {"kind": "mcp", "url": f"http://127.0.0.1:{port}{PATH}"}}


def with_gateway(_: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """The shop, and the agents' door."""
    return {**shop(port), "gateway": {}}


def as_it_is(_: Sandbox, __: int) -> Mapping[str, Mapping[str, Any]]:
    """The sandbox's own configuration."""
    return {}


def blind(_: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """Probe nothing."""
    return shop(port, lost={"unprobed": True}, vain={"unprobed": True})


def supervised(made: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """Probe nothing, and judge at once, by a model over HTTP."""
    key = made.root / "model.key"
    key.write_text("a-key")
    model = {
        "model": "openai",
        "model_name": "one",
        "base_url": f"http://127.0.0.1:{port}/v1",
        "api_key_file": str(key),
        "max_attempts": 2,
    }
    return {**blind(made, port), "supervisor": {"min_age_s": 0, "interval_s": 0.05, **model}}


def held(_: Sandbox, port: int) -> Mapping[str, Mapping[str, Any]]:
    """Act on no intent that the plane does not hold."""
    return {**shop(port), "control": {"intent_ack": "required"}}
