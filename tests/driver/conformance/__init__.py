"""Proofs of `driver.conformance`."""
