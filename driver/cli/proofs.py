"""Which probes have ever passed their self-test: a file in the state folder, and nothing of the journal's.

Part of `driver.cli`; imports pydantic and `store.durable`. A probe whose declaration has changed since is
another one.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError

from driver.config.providers import ProbeTable
from store.durable import write_durably

FILE: Final = "probes.json"


class Proof(BaseModel):
    """When a probe passed, and what it found."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    declaration: str
    """SHA-256 of what the probe asks, and of how it counts."""
    passed_at: datetime
    operation_id: str


class _Proofs(RootModel[dict[str, Proof]]):
    pass


def declaration(table: ProbeTable) -> str:
    """Return what makes a probe another one when it changes: its question, and how the answer is counted."""
    asked = [table.tool, table.arguments, table.matches]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def read_proofs(state_dir: Path) -> Mapping[str, Proof]:
    """Return the proofs by the tool that is probed; none where there is no file, or it cannot be read."""
    try:
        return _Proofs.model_validate_json((state_dir / FILE).read_bytes()).root
    except (OSError, ValidationError):
        return {}


def write_proofs(state_dir: Path, proofs: Mapping[str, Proof]) -> None:
    """Replace the file, whole or not at all. Raises OSError."""
    write_durably(state_dir / FILE, _Proofs(dict(proofs)).model_dump_json(indent=2).encode())
