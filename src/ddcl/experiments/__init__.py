"""Runs that can be repeated: every one a function that returns what it measured."""
