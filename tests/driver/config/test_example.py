"""The contract's own example: all of its keys are read, and exactly what is not built is refused."""

from pathlib import Path

from driver.config.load import parse
from driver.config.models import Config, ControlTable, DriverTable, JournalTable, LogTable, SupervisorTable
from driver.config.providers import McpProviderTable, ToolTable

EXAMPLE = Path(__file__).with_name("example.toml").read_text(encoding="utf-8")
SUPPORTED = EXAMPLE.partition("# --- from here on")[0]


def supported() -> Config:
    """Return the part of the example that this version can run."""
    return parse(SUPPORTED, Path("/etc/effectd/effectd.toml"))


def test_the_supported_part_is_valid() -> None:
    """Every key of the contract that means something today is accepted."""
    assert set(supported().providers) == {"issues", "later", "remote", "shell", "shop"}


def test_the_values_shown_are_the_defaults() -> None:
    """A table with the values of the contract is the same as a table without them."""
    config = supported()
    assert config.driver == DriverTable(id="sbx-7")
    assert config.journal == JournalTable()
    assert config.log == LogTable()
    assert config.supervisor == SupervisorTable()
    control = ControlTable(url="wss://h", scope="s", token_file=Path("/t"))
    shown = config.control
    assert shown is not None
    for key in ("allow_plaintext", "dead_after_s", "max_frame_bytes", "intent_ack", "intent_ack_timeout_s"):
        assert getattr(shown, key) == getattr(control, key)
    issues = config.providers["issues"]
    bare = McpProviderTable(kind="mcp", argv=("x",))
    for key in ("key", "late_result_s", "answer_max_bytes", "trust_annotations"):
        assert getattr(issues, key) == getattr(bare, key)
    shown_tool = issues.tools["create_issue"].model_copy(update={"dedupe_horizon_s": None, "receipt": None})
    assert shown_tool == ToolTable()


def test_all_of_the_contract_is_built() -> None:
    """The example uses every table and key, and is valid."""
    assert parse(EXAMPLE, Path("/etc/effectd/effectd.toml")).gateway is not None
