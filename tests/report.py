"""The lines that a run of the tests ends with: what was counted and measured, whichever process did it.

Tests may run in several processes (pytest-xdist); what they report is gathered in the one that prints.
"""

from typing import Final, TypeAlias

import pytest

Report: TypeAlias = dict[str, list[str]]
"""The lines of each section, in the order that they came in."""

REPORT: Final = pytest.StashKey[Report]()
_KEY: Final = "report"


def add(config: pytest.Config, section: str, *lines: str) -> None:
    """Add lines to a section of the report."""
    config.stash[REPORT].setdefault(section, []).extend(lines)


class Reporter:
    """The plugin: one in each process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Make room."""
        config.stash[REPORT] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what a worker has, once everybody has added to it."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_KEY] = session.config.stash[REPORT]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a worker hands over; one that died hands over nothing, and is an error anyway."""
        output: dict[str, Report] = getattr(node, "workeroutput", {})
        config: pytest.Config = getattr(node, "config")  # noqa: B009 - xdist's node has no public type
        for section, lines in output.get(_KEY, {}).items():
            add(config, section, *lines)

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, config: pytest.Config
    ) -> None:
        """Print it, whether the tests passed or not."""
        for section, lines in config.stash[REPORT].items():
            terminalreporter.section(section)
            for line in lines:
                terminalreporter.write_line(line)
