"""Tests of the command provider, with real programs, real shims, and real kills."""
