"""The collected files of clients, and what becomes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from driver.importing.placeholders import Surroundings
from driver.importing.planning import Plan, env_files, plan, project
from driver.importing.rendering import Answer, Folders, render
from driver.importing.shapes import read_document

CLIENTS: Final = Path(__file__).resolve().parents[2] / "data" / "clients"
CANARY: Final = "canary"
"""In every made-up secret."""
HOME: Final = Path("/home/mia")
FOLDERS: Final = Folders(state_dir="state", runtime_dir="run", secrets_dir="effectd.secrets")
VARIABLES: Final[Mapping[str, str]] = {
    "HOME": str(HOME),
    "API_KEY": "canary-api-key",
    "DB_URL": "canary://db",
    "DB_PASSWORD": "canary-db",
    "ORG": "canary-org",
    "PERPLEXITY_KEY": "canary-perplexity",
}


def files() -> list[Path]:
    """Return all collected files of clients."""
    found = (path for path in CLIENTS.rglob("*") if path.suffix in {".json", ".jsonc", ".toml"})
    return sorted(found)


def planned(
    text: str,
    path: Path = Path("/home/mia/file.json"),
    *,
    variables: Mapping[str, str] = VARIABLES,
    skipped: frozenset[str] = frozenset(),
) -> Plan:
    """Return what becomes of a client's file. Raises `ImportRefused`."""
    document = read_document(text, path)
    folder = project(path, HOME)
    around = Surroundings(
        variables=variables,
        folder=folder or path.parent,
        in_project=folder is not None,
        home=HOME,
        inputs=document.inputs,
    )
    named = env_files(document, around, skipped)
    texts = {name: file.path.read_text() for name, file in named.items() if file.path.is_file()}
    return plan(document, around, texts, skipped)


def rendered(made: Plan, answers: Mapping[str, Answer] | None = None) -> str:
    """Return the configuration."""
    return render(made, FOLDERS, answers or {})
