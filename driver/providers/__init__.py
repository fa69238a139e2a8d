"""Shells around the outside that does the work: one folder for each kind of provider.

They know nothing of the journal. May import `driver.core`, `driver.config` (its models, read-only) and
`store.records`.
"""
