"""The daemon: takes commands, executes them against providers, and tells the plane what happened.

`core` decides, the other folders are shells around it, `daemon` puts them together, `cli` is the command
line. Which of them may import which stands in pyproject.toml, as import-linter contracts.
"""
