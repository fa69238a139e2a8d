"""Writes the reference part of docs/cli.md from the commands themselves: `python -m tests.cli_reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from driver.cli.main import main

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
BEGIN: Final = "<!-- from here on written by `python -m tests.cli_reference` -->\n"
WIDTH: Final = 100


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with what a person types, groups before what is in them."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def reference() -> str:
    """Return the generated part of the page."""
    return "\n".join(_section(path, command) for path, command in commands(main, "effectd"))


def written() -> str:
    """Return the generated part as it stands in the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2]


def _section(path: str, command: click.Command) -> str:
    level = "#" * (path.count(" ") + 1)
    context = click.Context(command, info_name=path, max_content_width=WIDTH, terminal_width=WIDTH)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"{level} `{path}`", "", f"    {usage}", ""]
    lines += [_paragraphs(command.help or ""), ""]
    options = [row for item in command.params if (row := _row(item, context)) is not None]
    if options:
        lines += ["| option | |", "|---|---|", *options, ""]
    return "\n".join(lines)


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


def _row(item: click.Parameter, context: click.Context) -> str | None:
    record = item.get_help_record(context)
    if not isinstance(item, click.Option) or record is None:
        return None
    name, text = (part.replace("|", "\\|") for part in record)
    return f"| `{name}` | {' '.join(text.split())} |"


if __name__ == "__main__":
    head = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(head + BEGIN + reference(), encoding="utf-8")
