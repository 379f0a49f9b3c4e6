"""``ddcl report``: a run as one page to open in a browser, and its pictures as files."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddcl.fitting import BadInputError, Fitted, load
from ddcl.fitting.charts import map_of, phases_of
from ddcl.fitting.comparing import comparison_of
from ddcl.fitting.folder import RunFolder
from ddcl.report.page import Contents, Drawn, gather, write_page
from ddcl.report.page.texts import listed

PAGE = "report.html"
DESCRIPTION = """\
Write a run as one page of HTML: whether it is healthy and why, how it does beside k-means and logistic regression, the
training, a map of the rows, a card for each prototype, what merges at which temperature, the rows it is least sure of.

The page is one file that opens from disk and asks no network for anything. It holds texts of the data: share it as you
would share them. `ddcl fit` writes it at its end; run this after prototypes were renamed, or for the pictures.
"""
EPILOG = """\
examples:
  ddcl report runs/messages                            writes runs/messages/report.html
  ddcl report runs/messages --open                     and shows it
  ddcl report runs/messages --figures figures          and every picture as .svg and .png

exit status: 0 done, 1 failed, 2 something in the request must be put right
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, metavar="RUN", help="folder that `ddcl fit` wrote")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the page (RUN/{PAGE})")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="also write the pictures there")
    parser.add_argument("--open", action="store_true", help="show the page in the browser of this machine")


def run(arguments: argparse.Namespace) -> int:
    """Write the page; 2 if the user can put something right, 1 if something failed."""
    out = arguments.out or arguments.run / PAGE
    try:
        if out.is_dir():
            raise BadInputError(f"--out: {out} is a folder, expected the name of a file")
        if arguments.figures is not None:
            _check_folder(arguments.figures)
        contents = contents_of(load(arguments.run))
        write_page(contents, out)
        print(f"written to {out} ({out.stat().st_size / 2**20:.1f} MiB)")
        if arguments.figures is not None:
            from ddcl.report.run_figures import write_figures

            written = write_figures(contents, arguments.figures)
            print(f"and {len(written)} pictures to {arguments.figures}")
    except (BadInputError, ImportError) as error:
        return _complain(str(error), 2)
    except (OSError, RuntimeError) as error:
        return _complain(f"failed: {' '.join(str(error).split()) or type(error).__name__}", 1)
    if arguments.open and not webbrowser.open(out.resolve().as_uri()):
        return _complain(f"there is no browser to show it in; open {out} yourself", 1)
    return 0


def contents_of(fitted: Fitted) -> Contents:
    """What the page says; what the run is drawn from is made if it is not there yet.

    Of a run whose embeddings are no longer to be had, what cannot be made is left out.
    """
    left_out: dict[str, str] = {}

    def made(name: str, make: Callable[[RunFolder], dict[str, Any] | None]) -> dict[str, Any] | None:
        try:
            return make(fitted.folder)
        except BadInputError as missing:
            left_out[name] = str(missing)
            return None

    parts = made("the map", map_of), made("the phases", phases_of), made("the comparison with k-means", comparison_of)
    for why in dict.fromkeys(left_out.values()):
        _say(f"without {listed([name for name, said in left_out.items() if said == why])}: {why}")
    return gather(fitted, Drawn(*parts, left_out=tuple(left_out)))


def report_at_the_end(fitted: Fitted) -> str:
    """Write the page of a run just fitted, and say in a sentence what came of it: a failure must not fail the run."""
    out = fitted.folder.path / PAGE
    try:
        write_page(contents_of(fitted), out)
    except Exception as error:  # whatever it is
        why = " ".join(str(error).split()) or type(error).__name__
        return f"the report could not be written ({why}); the run is whole without it"
    return f"report: {out}"


def _check_folder(path: Path) -> None:
    """Refuse a place where no folder can be made, before anything is written."""
    there = next(one for one in (path, *path.parents) if one.exists())
    if not there.is_dir():
        raise BadInputError(f"--figures: {there} is a file, expected the name of a folder")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl report: {sentence}", file=sys.stderr)
    return status
