"""The configuration: one TOML file, read once, validated whole, mapped to values of `driver.core`.

May import `driver.core.contracts`, and nothing else of ours.
"""
