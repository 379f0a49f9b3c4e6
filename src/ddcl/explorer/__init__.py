"""The local web application over a finished run: ``ddcl explore RUN``."""

from ddcl.explorer.application import application
from ddcl.explorer.explored import ExploredRun
from ddcl.explorer.serving import address_of, listen, serve

__all__ = ["ExploredRun", "address_of", "application", "listen", "serve"]
