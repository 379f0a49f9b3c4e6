"""The command line: parses and calls.

A command is one line in ``COMMANDS`` and a module with ``add_arguments(parser)`` and ``run(arguments) -> int``;
the module is imported only when its command is asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from ddcl.version import __version__


class Command(NamedTuple):
    """Where a command lives and what it is for."""

    module: str
    purpose: str


COMMANDS: dict[str, Command] = {
    "bench": Command("ddcl.experiments.bench", "measure: collapse, clustering of 20 Newsgroups, speed"),
    "claims": Command("ddcl.experiments.claims.command", "run every claim of the theory and print a verdict for each"),
    "doctor": Command("ddcl.commands.doctor", "what this machine has for ddcl, and whether ddcl works on it"),
    "explain": Command("ddcl.commands.explain", "what the prototypes of a run are, why a text is read as it is"),
    "explore": Command("ddcl.commands.explore", "look around in a run of fit, in the browser on this machine"),
    "fit": Command("ddcl.commands.fit", "texts or embeddings to prototypes you can read, in a run folder"),
    "report": Command("ddcl.commands.report", "a run as one page to open in a browser, and its pictures as files"),
    "reproduce": Command("ddcl.commands.reproduce", "run a table or figure of the paper again, beside its own figures"),
}

DESCRIPTION = """\
ddcl: a small bank of learned prototypes on top of any encoder. The library is used from Python (`import ddcl`);
these commands run what comes with it.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of the command's name; the rest is left to the command."""
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items())
    top = argparse.ArgumentParser(
        prog="ddcl",
        usage="ddcl [--help] [--version] COMMAND ...",
        description=DESCRIPTION,
        epilog=f"commands:\n{listed}\n\n`ddcl COMMAND --help` tells more about each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ddcl {__version__}")
    top.add_argument("command", metavar="COMMAND", nargs="?", help=argparse.SUPPRESS)
    top.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    top = parser()
    found = top.parse_args(argv)
    if found.command is None:
        top.print_help()
        return 0
    if found.command not in COMMANDS:
        top.error(f"there is no command {found.command!r}; known: {', '.join(COMMANDS)}")
    module = import_module(COMMANDS[found.command].module)
    own = argparse.ArgumentParser(prog=f"ddcl {found.command}", description=COMMANDS[found.command].purpose)
    module.add_arguments(own)
    try:
        # intermixed: options may stand between a run and texts
        return int(module.run(own.parse_intermixed_args(found.arguments)))
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
