"""``ddcl explore``: a run in the browser, on this machine."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

import torch

from ddcl.fitting import BadInputError, load

DESCRIPTION = """\
Look around in a run of `ddcl fit`, in your browser: type a text and see its mixture of prototypes, read what each
prototype stands for and give it a name, search the rows, find those the bank is unsure of, and turn the temperature to
watch prototypes merge and split.

The server answers to this machine alone (127.0.0.1) and needs no network. When you rename a prototype it writes
names.json into the run folder, and map.json and phases.json for a run that has none; nothing else. Ctrl-C stops it.
"""
EPILOG = """\
examples:
  ddcl explore runs/messages
  ddcl explore runs/messages --open
  ddcl explore runs/messages --port 9000

exit status: 0 stopped, 1 failed, 2 something in the request must be put right
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder that `ddcl fit` has written")
    parser.add_argument("--port", type=_port, metavar="N", help="where it listens (the first free one from 8321 on)")
    parser.add_argument("--open", action="store_true", help="open the browser too")
    parser.add_argument("--device", default="cpu", help="where the model works: cpu (the default), cuda, cuda:1, mps")


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped; 2 if the user can put something right, 1 if something failed."""
    try:
        return _serve(arguments)
    except KeyboardInterrupt:
        return 0
    except (BadInputError, ImportError) as error:
        return _complain(str(error), 2)
    except (OSError, RuntimeError) as error:
        said = " ".join(str(error).split())
        return _complain(f"failed: {said or type(error).__name__}", 1)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        torch.empty(0, device=arguments.device)
    except (RuntimeError, AssertionError) as error:
        raise BadInputError(f"--device: {arguments.device!r} is not on this machine") from error
    fitted = load(arguments.run_folder, device=arguments.device)
    try:
        from ddcl.explorer import ExploredRun, LocalServer, address_of, application, listen
    except ImportError as error:
        raise ImportError(f"the explorer needs {error.name}: pip install 'ddcl[explore]'") from error
    with listen(arguments.port) as listening:
        print(f"reading {fitted.folder.path} ...", file=sys.stderr, flush=True)
        explored = ExploredRun(fitted)
        explored.warm()
        print(f"{address_of(listening)}  (Ctrl-C stops)", flush=True)
        if arguments.open:
            webbrowser.open(address_of(listening))
        app = application(explored)
        LocalServer(app, listening, app.state.close).run()
    return 0


def _port(given: str) -> int:
    if not given.isdecimal() or not 1 <= int(given) <= 65535:
        raise argparse.ArgumentTypeError(f"got {given!r}, expected a number from 1 to 65535")
    return int(given)


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl explore: {sentence}", file=sys.stderr)
    return status
