"""The WebSocket to the control plane: a shell around `driver.core.session`.

May import `driver.core`, `driver.config` (its models, read-only) and `store`.
"""
