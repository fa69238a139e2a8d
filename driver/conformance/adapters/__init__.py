"""Adapters that come with effectd: each a program of its own, `python -m driver.conformance.adapters.NAME`.

Part of `driver.conformance`. What an adapter adds to its runtime is nothing: no retry, no memory, no care of
its own. Each says in its docstring how what its runtime tells a caller becomes an outcome.

effectd      the daemon, with its reference plane
in_memory    what most agent drivers are: a map of command ids, a deadline, three tries
careful      the battery's own good client, of a hundred lines
reckless     the battery's own bad client
"""
