"""A program to a file of ONNX or torch.export, and a file to a function that runs it without ddcl."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ddcl.fitting.exporting.programs import Program

Format = Literal["onnx", "torch"]
FORMATS: tuple[str, ...] = get_args(Format)
ENDINGS = {"onnx": ".onnx", "torch": ".pt2"}
METADATA = "metadata.json"
OPSET = 18
"""The oldest that torch's exporter writes, so that the most runtimes take it."""

Run = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
"""Inputs by name to outputs by name."""


def write_program(
    program: Program, path: Path, export_format: Format, metadata: Mapping[str, Any], opset: int = OPSET
) -> None:
    """Trace a program and write it with what is to be known of it, each value as JSON."""
    with torch.no_grad():
        traced = torch.export.export(
            program.module, (), dict(program.example), dynamic_shapes=program.dynamic, strict=False
        )
    for node in traced.graph.nodes:
        node.meta.pop("stack_trace", None)  # names folders of this machine
    if export_format == "torch":
        whole = io.BytesIO()  # torch's own writer tells of a full disk as of a wrong position in a file
        torch.export.save(traced, whole, extra_files={METADATA: json.dumps(metadata)})
        path.write_bytes(whole.getbuffer())
        return
    with _quiet_exporter():
        written = torch.onnx.export(
            traced,
            input_names=list(program.example),
            output_names=list(program.outputs),
            dynamic_shapes=program.axes,
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    assert written is not None, "the exporter built on torch.export returns its program"
    # a name may hold anything, half a pair of surrogates too: JSON in ASCII carries it through UTF-8
    written.model.metadata_props.update({name: json.dumps(value) for name, value in metadata.items()})
    written.save(path)


def load_program(path: Path, export_format: Format) -> Run:
    """What is in a file, checked by its format's own means, ready to run on the CPU."""
    return _load_onnx(path) if export_format == "onnx" else _load_torch(path)


def check_packages(export_format: Format) -> None:
    """Raise ImportError where a package is missing that writing and checking a format needs."""
    if export_format == "onnx":
        _onnx_packages()


def newest_opset() -> int:
    """The newest operator set that the onnx package knows."""
    return int(_onnx_packages()[0].defs.onnx_opset_version())


def _load_onnx(path: Path) -> Run:
    onnx, onnxruntime = _onnx_packages()
    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        found = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(array) for name, array in zip(names, found, strict=True)}

    return run


def _load_torch(path: Path) -> Run:
    module = torch.export.load(path).module()

    def run(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            found: dict[str, Tensor] = module(**inputs)
        return found

    return run


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what torch's exporter says of itself and of packages that have no part in this."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")  # "torchvision is not installed"
    level = logger.level
    with warnings.catch_warnings():
        # torch copies its own tree specifications, whose class it has deprecated
        warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", category=FutureWarning)
        # both inputs of a whole model have the axes N and L, which is meant
        warnings.filterwarnings("ignore", message="# The axis name: . will not be used", category=UserWarning)
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def _onnx_packages() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter is written in it
    except ImportError as error:
        raise ImportError("ONNX files need onnx, onnxruntime and onnxscript: pip install 'ddcl[export]'") from error
    return onnx, onnxruntime
