"""The configuration: one TOML file, read once, validated whole, mapped to values of `driver.core`.

`load` is the way in. Imports `driver.core.contracts` and `driver.core.expressions`, nothing else of ours.
"""
