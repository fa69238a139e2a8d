"""Runs the decisions of `driver.core` against the journal and the providers: intake, dispatch, recovery.

May import `driver.core`, `driver.providers`, `driver.config` and `store`.
"""
