"""A fitted model to a file that runs without ddcl: ONNX or torch.export, checked against the original."""

from ddcl.fitting.exporting.checking import Checked, Difference, MismatchError
from ddcl.fitting.exporting.exported import Exported, ExportError, export_run
from ddcl.fitting.exporting.files import FORMATS, OPSET, Format
from ddcl.fitting.exporting.programs import WHATS, What

__all__ = [
    "FORMATS",
    "OPSET",
    "WHATS",
    "Checked",
    "Difference",
    "ExportError",
    "Exported",
    "Format",
    "MismatchError",
    "What",
    "export_run",
]
