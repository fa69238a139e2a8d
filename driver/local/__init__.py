"""The local HTTP API on the Unix sockets `inspect.sock` and `operator.sock`.

May import `driver.core`, `driver.config` (its models, read-only) and `store`.
"""
