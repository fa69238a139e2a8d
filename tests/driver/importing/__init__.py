"""Tests of `driver.importing`."""
