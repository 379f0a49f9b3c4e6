"""``ddcl export``: a fitted model to a file that runs without ddcl."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ddcl.fitting import BadInputError, load
from ddcl.fitting.exporting import FORMATS, OPSET, WHATS, Exported, export_run
from ddcl.fitting.exporting.checking import SIZES

DESCRIPTION = """\
Write a fitted model as a program that runs without ddcl, in float32 on the CPU: ONNX for onnxruntime and others, or
torch.export for torch alone. RUN is a finished run of `ddcl fit`.

  --what readout   one file: embeddings (N, m) to the mixture of prototypes (N, K), the soft centroid (N, m), the number
                   of the nearest prototype (N) and, with a head, the probabilities of the classes (N, C)
  --what whole     a folder: the same from the tokens of texts, input_ids and attention_mask (N, L), with the encoder in
                   it; beside it the tokenizer's files, metadata.json and usage.md, which has the code to run it

N and L may have any size, L up to the most tokens of the run. What was written is loaded again, run on rows of RUN and
compared with the original; it is kept only if the differences are no larger than the rounding of float32.
"""
EPILOG = """\
examples:
  ddcl export runs/messages                                     runs/messages/readout.onnx
  ddcl export runs/messages --what whole --out deployed         a folder that answers texts
  ddcl export runs/messages --format torch --out readout.pt2

exit status: 0 done, 1 failed or differs from the original, 2 something in the request must be put right
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("--format", choices=FORMATS, default="onnx", help="onnx (the default) or torch")
    parser.add_argument("--what", choices=WHATS, default="readout", help="readout (the default) or whole, see above")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="a file (.onnx, .pt2) or with --what whole a folder (in RUN: readout.onnx, readout.pt2, whole-onnx, "
        "whole-torch)",
    )
    parser.add_argument("--opset", type=int, metavar="N", help=f"operator set of ONNX ({OPSET}, the oldest)")
    parser.add_argument("--force", action="store_true", help="replace an earlier export")


def run(arguments: argparse.Namespace) -> int:
    """Export; 2 if the user can put something right, 1 if something failed, differed or was interrupted."""
    try:
        done = export_run(
            load(arguments.run),
            arguments.out,
            export_format=arguments.format,
            what=arguments.what,
            opset=arguments.opset,
            force=arguments.force,
        )
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was written", 1)
    except (BadInputError, ImportError) as error:
        return _complain(str(error), 2)
    except (OSError, RuntimeError) as error:
        return _complain(f"failed, nothing was written: {' '.join(str(error).split())}", 1)
    print(summary(done))
    return 0


def summary(done: Exported) -> str:
    """What was written, what goes in and comes out, and how near it is to the original."""
    facts, checked = done.metadata, done.checked
    rows = "rows of the run" if checked.own else "made-up rows (those of the run are not there)"
    *some, last = map(str, SIZES)
    lines = [
        f"written to {done.path} ({done.bytes / 2**20:.1f} MiB, float32)",
        *(f"  in   {_shaped(name, shape)}" for name, shape in facts["inputs"].items()),
        *(f"  out  {_shaped(name, shape)}" for name, shape in facts["outputs"].items()),
        f"checked against the original on {checked.rows} {rows}, in batches of {', '.join(some)} and {last}:",
        *(f"  {one.output:<13} differs by {one.found:.1e}, allowed {one.allowed:.1e}" for one in checked.differences),
    ]
    return "\n".join(lines)


def _shaped(name: str, shape: list[str | int]) -> str:
    return f"{name} ({', '.join(map(str, shape))})"


def _complain(sentence: str, status: int) -> int:
    print(f"ddcl export: {sentence}", file=sys.stderr)
    return status
