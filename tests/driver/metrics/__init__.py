"""Tests of `driver.metrics`."""
