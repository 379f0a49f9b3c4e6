"""Nothing is measured while a backend is wrong or a test red."""

from __future__ import annotations

import math

import pytest
import torch

from ddcl import ops
from ddcl.cli import main
from ddcl.experiments.kernels import correctness, suite
from ddcl.experiments.kernels.shapes import Shape

CPU = torch.device("cpu")
OURS = ("readout:eager", "operation:eager")


@pytest.fixture
def _green(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run_tests", lambda: suite.Verdict(True, "not run in this test"))


def test_a_correct_backend_passes_the_check_in_every_dtype():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert list(correctness.check_ragged(["eager"], dtype, CPU)) == []
        assert list(correctness.check_measured(["eager"], Shape(301, 16, 40), dtype, CPU)) == []


def spoilt(change):
    """The operation with its outputs changed in half precision, that is: for the backend, not for the yardstick."""
    honest = ops.readout

    def readout(z, *args):
        terms = honest(z, *args)
        return change(terms) if z.dtype == torch.bfloat16 else terms

    return readout


def with_gradient_scaled(x: torch.Tensor) -> torch.Tensor:
    """The same values, with 1.02 times the gradient."""
    return x + 0.02 * (x - x.detach())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda terms: terms._replace(centroid=1.02 * terms.centroid), "centroid"),
        (lambda terms: terms._replace(variance=1.02 * terms.variance), "variance"),
        (lambda terms: terms._replace(entropy=terms.entropy * math.nan), "entropy"),
        (lambda terms: terms._replace(indices=terms.indices * 0), "indices"),
        (lambda terms: terms._replace(indices=terms.indices - 10_000), "indices"),
        (lambda terms: terms._replace(centroid=with_gradient_scaled(terms.centroid)), "grad z"),
    ],
    ids=["centroid", "term", "NaN", "indices", "negative indices", "gradient"],
)
@pytest.mark.usefixtures("_green")
def test_while_a_backend_is_wrong_nothing_is_written(change, named, monkeypatch, tmp_path, capsys):
    path = tmp_path / "kernels.csv"
    path.write_text("an older record\n")
    monkeypatch.setattr(ops, "readout", spoilt(change))
    asked = ["bench", "kernels", "--quick", "--dtype", "bfloat16", "--candidates", *OURS, "--out", str(path)]
    assert main(asked) == 1
    assert path.read_text() == "an older record\n"
    shown = capsys.readouterr()
    assert named in shown.err
    assert "ms" not in shown.out


@pytest.mark.usefixtures("_green")
def test_a_backend_that_raises_is_red(monkeypatch, capsys):
    def fail(terms):
        raise RuntimeError("no kernel for this size")

    monkeypatch.setattr(ops, "readout", spoilt(fail))
    assert main(["bench", "kernels", "--quick", "--dtype", "bfloat16", "--candidates", "operation:eager"]) == 1
    assert "no kernel for this size" in capsys.readouterr().err


def test_while_tests_are_red_nothing_is_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(suite, "run_tests", lambda: suite.Verdict(False, "tests/ops: 1 failed"))
    path = tmp_path / "kernels.csv"
    assert main(["bench", "kernels", "--quick", "--candidates", "plain", "--out", str(path)]) == 1
    assert not path.exists()
    assert "tests/ops: 1 failed" in capsys.readouterr().err


@pytest.mark.parametrize(("line", "green"), [("assert 2 > 1", True), ("assert 1 > 2", False)])
def test_the_tests_of_a_checkout_are_run(line, green, tmp_path):
    folder = tmp_path / "tests" / "ops"
    folder.mkdir(parents=True)
    (folder / "test_one.py").write_text(f"def test_one():\n    {line}\n")
    verdict = suite.run_tests(tmp_path)
    assert verdict.green == green
    assert ("1 passed" if green else "FAILED tests/ops/test_one.py::test_one") in verdict.line


def test_without_a_checkout_or_pytest_there_are_no_tests_to_run(tmp_path, monkeypatch):
    assert suite.run_tests(tmp_path) == (True, "tests not run: this is no checkout")
    (tmp_path / "tests" / "ops").mkdir(parents=True)
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda _: None)
    assert suite.run_tests(tmp_path) == (True, "tests not run: pytest is not installed")
