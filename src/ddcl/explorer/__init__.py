"""The local web application over a finished run: ``ddcl explore RUN``."""

from ddcl.explorer.application import application
from ddcl.explorer.explored import ExploredRun
from ddcl.explorer.serving import LocalServer, address_of, listen

__all__ = ["ExploredRun", "LocalServer", "address_of", "application", "listen"]
