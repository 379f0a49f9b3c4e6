"""Explanations from arrays and texts alone: terms, cards, nearest examples, and whether the explanations are true."""

from ddcl.explain.outputs import Example, Explanation, Neighbour, PrototypeCard, Share, Term, Vocabulary, Word

__all__ = ["Example", "Explanation", "Neighbour", "PrototypeCard", "Share", "Term", "Vocabulary", "Word"]
