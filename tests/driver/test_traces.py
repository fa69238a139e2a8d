"""Which processes make spans: those that an SDK was set up in, and the others do not even load its API."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

CONFIG: Final = """
[driver]
state_dir = "/nowhere/state"
runtime_dir = "/nowhere/run"
[providers.a]
kind = "mcp"
argv = ["server"]
[providers.b]
kind = "mcp"
url = "https://mcp.example/mcp"
[providers.c]
kind = "http"
base_url = "https://api.example"
[providers.d]
kind = "command"
[providers.d.tools.run]
argv = ["true"]
"""
SCRIPT: Final = """
import json, sys
from pathlib import Path
from driver import assembly, daemon
from driver.config.load import parse
found = assembly.traces(parse(sys.argv[1], Path("effectd.toml")), "effectd/1")
kinds = {name: [how.mcp, how.network] for name, how in getattr(found, "_transports", {}).items()}
print(json.dumps([type(found).__name__, "opentelemetry" in sys.modules, kinds]))
"""


def made(**env: str) -> list[object]:
    """The class of the tracer in a fresh process, whether the API was loaded, and how providers are named."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, CONFIG],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
        cwd=Path(__file__).resolve().parents[2],
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_without_an_sdk_nothing_is_loaded() -> None:
    """It would cost five megabytes and fifty milliseconds of every start."""
    assert made() == ["Untraced", False, {}]


def test_with_an_sdk_every_provider_is_named_by_its_kind() -> None:
    """The API's own variable, or whatever has loaded it before, is heeded."""
    kinds = {"a": [True, "pipe"], "b": [True, "tcp"], "c": [False, "tcp"], "d": [False, None]}
    assert made(OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider") == ["OpenTelemetry", True, kinds]
