"""What the user can put right, said in one sentence."""

from __future__ import annotations


class BadInputError(ValueError):
    """What was given cannot be fitted or loaded; the message is one sentence that says what is accepted."""
