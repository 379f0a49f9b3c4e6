"""From a table of texts or an array of embeddings to a run folder, and from there to an object that reads new ones."""

from ddcl.fitting.errors import BadInputError
from ddcl.fitting.fitted import Fitted, load
from ddcl.fitting.folder import RunFolder, finished_run, open_run

__all__ = ["BadInputError", "Fitted", "RunFolder", "finished_run", "load", "open_run"]
