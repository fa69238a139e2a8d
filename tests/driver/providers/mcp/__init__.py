"""Tests of the package that this folder mirrors."""
