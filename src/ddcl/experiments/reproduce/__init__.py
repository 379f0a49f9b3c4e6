"""The paper's tables and figures, each one study: run, recorded, set beside what the paper reports."""

from ddcl.experiments.reproduce.registry import STUDIES, load_study
from ddcl.experiments.reproduce.study import Paper, Result, Run, Study

__all__ = ["STUDIES", "Paper", "Result", "Run", "Study", "load_study"]
