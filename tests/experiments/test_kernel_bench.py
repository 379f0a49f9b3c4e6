"""The bench of the operation: floors, candidates, timing, rows."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import pytest
import torch

from ddcl import ops
from ddcl.cli import main
from ddcl.experiments.kernels import command, measuring, suite
from ddcl.experiments.kernels.candidates import Calls, Candidate, candidates, usual
from ddcl.experiments.kernels.formulas import attention, plain
from ddcl.experiments.kernels.problem import Problem
from ddcl.experiments.kernels.record import append, blank, read
from ddcl.experiments.kernels.shapes import (
    KINDS,
    QUICK_SHAPES,
    Rates,
    Shape,
    floor_ms,
    held_bytes,
    parse_shape,
    tensor_bytes,
)
from ddcl.experiments.kernels.table import table
from ddcl.experiments.kernels.timing import QUICK, Plan, Timing, summarise, time_calls

CPU = torch.device("cpu")
RATES = Rates(copy=4e12, matrix=700e12)
SMALL = Shape(53, 7, 11)
OURS = ("readout:eager", "operation:eager")


@pytest.fixture
def _green(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "run_tests", lambda: suite.Verdict(True, "not run in this test"))


# sizes and floors


@pytest.mark.parametrize(
    ("shape", "kind", "rates", "expected"),
    [
        # an H200's rates: bound by bytes, by products, and a training step of each
        (Shape(2**20, 64, 16), "forward", Rates(4.25e12, 693e12), 0.063),
        (Shape(2**17, 256, 8192), "forward", Rates(4.25e12, 693e12), 1.587),
        (Shape(2**20, 64, 64), "forward+backward", Rates(4.27e12, 687e12), 0.157),
        (Shape(2**17, 256, 8192), "forward+backward", Rates(4.27e12, 687e12), 5.60),
        # 2 * 3 * 5 * 2 bytes at 1 byte per millisecond; 4 * 3 * 7 * 5 operations at 1 per millisecond
        (Shape(3, 5, 7), "forward", Rates(1e3, 1e9), 60.0),
        (Shape(3, 5, 7), "forward", Rates(1e9, 1e3), 420.0),
        (Shape(3, 5, 7), "forward+backward", Rates(1e3, 1e9), 150.0),
        (Shape(3, 5, 7), "forward+backward", Rates(1e9, 1e3), 1470.0),
    ],
)
def test_the_floor_is_the_larger_of_moving_the_bytes_and_doing_the_products(shape, kind, rates, expected):
    assert floor_ms(shape, kind, 2, rates) == pytest.approx(expected, rel=5e-3)


def test_float32_moves_twice_the_bytes_of_half_precision():
    rates = Rates(1.0, math.inf)
    for kind in KINDS:
        assert floor_ms(SMALL, kind, 4, rates) == 2 * floor_ms(SMALL, kind, 2, rates)


def test_the_tensors_of_a_pass_are_counted_byte_for_byte():
    N, m, K = SMALL
    z = mu = torch.empty(N, m, dtype=torch.bfloat16)
    bank = torch.empty(K, m, dtype=torch.bfloat16)
    terms = ops.readout(z.unsqueeze(1), bank.unsqueeze(0), torch.ones(1, 1), None, "full", "eager")
    outputs = sum(term.nbytes for term in terms)
    assert tensor_bytes(SMALL, "forward", 2) == z.nbytes + bank.nbytes + outputs
    gradients = z.nbytes + bank.nbytes + mu.nbytes
    assert tensor_bytes(SMALL, "forward+backward", 2) == z.nbytes + bank.nbytes + outputs + gradients
    assert held_bytes(SMALL, "forward", 2) == z.nbytes + bank.nbytes
    assert held_bytes(SMALL, "forward+backward", 2) == z.nbytes + bank.nbytes + mu.nbytes


def test_a_shape_is_read_with_powers_and_written_with_them():
    assert parse_shape("2^20,64,16") == Shape(2**20, 64, 16)
    assert parse_shape("300,5,7") == Shape(300, 5, 7)
    assert str(parse_shape("2^17,256,8192")) == "(2^17, 256, 8192)"
    for wrong in ("64,16", "2^20,64,16,1", "a,b,c", "0,4,4", "-3,4,4"):
        with pytest.raises(ValueError, match="shape: got"):
            parse_shape(wrong)


# what is measured


def test_the_rivals_of_the_operation_compute_it_too():
    problem = Problem(SMALL, torch.float32, CPU)
    z, prototypes, upstream = problem.sets[0]
    T = torch.full((1, 1), problem.temperature)
    exact = ops.readout(z.unsqueeze(1), prototypes.unsqueeze(0), T, None, "full", "reference")
    found = plain(z, prototypes, problem.temperature)
    for name in ("centroid", "total", "reconstruction", "variance", "entropy", "quantization", "indices"):
        torch.testing.assert_close(getattr(found, name), getattr(exact, name).squeeze(1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(attention(z, prototypes, problem.temperature), exact.centroid.squeeze(1))
    inputs = (z, prototypes)
    both = (exact.centroid.squeeze(1), exact.total.mean())
    expected = torch.autograd.grad(both, inputs, (upstream, torch.ones(())), retain_graph=True)
    of_centroid = torch.autograd.grad(both[0], inputs, upstream)
    known = candidates()
    for name in ("plain", *OURS):
        for one, other in zip(known[name].make(problem).step(problem.sets[0]), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    for one, other in zip(known["sdpa"].make(problem).step(problem.sets[0]), of_centroid, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_attention_in_half_precision_keeps_the_digits_of_the_bias():
    shape = Shape(512, 16, 33)  # 256 groups of two tokens
    problem = Problem(shape, torch.bfloat16, CPU)
    z, prototypes, _ = (x.detach() for x in problem.sets[0])
    exact = attention(z.double(), prototypes.double(), problem.temperature)
    found = attention(z, prototypes, problem.temperature)
    assert found.dtype == torch.bfloat16
    assert (found.double() - exact).square().mean().sqrt() < 8e-3 * exact.square().mean().sqrt()


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("vq-ema", "vector_quantize_pytorch"),
        ("vq-learnable", "vector_quantize_pytorch"),
        ("slot-attention", "slot_attention"),
        ("perceiver", "perceiver_pytorch"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_of_another_mechanism_gives_gradients_for_tokens_and_parameters(name, package, dtype):
    pytest.importorskip(package)
    problem = Problem(Shape(24, 8, 5), getattr(torch, dtype), CPU)
    calls = candidates()[name].make(problem)
    calls.forward(problem.sets[0])
    of_tokens, *of_parameters = calls.step(problem.sets[0])
    assert of_tokens.shape == problem.sets[0].z.shape
    assert of_tokens.abs().sum() > 0
    assert all(grad is not None and torch.isfinite(grad).all() for grad in of_parameters)
    assert bool(of_parameters) == (name != "vq-ema")  # whose codes move by running means


def test_without_a_package_the_candidate_is_a_row_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "slot_attention", None)
    rows = measuring.measure(candidates()["slot-attention"], Problem(SMALL, torch.float32, CPU), RATES, QUICK)
    assert [row.status for row in rows] == ["failed", "failed"]
    assert "pip install 'ddcl[rivals]'" in rows[0].note


def test_triton_is_not_tried_on_a_cpu_nor_the_compiler_in_a_quick_run():
    assert not any(name.endswith(":triton") for name in usual(CPU, quick=False))
    assert "compiled" in usual(CPU, quick=False)
    assert "compiled" not in usual(CPU, quick=True)
    assert set(usual(CPU, quick=True)) <= set(candidates())


# timing


def test_percentiles_are_those_of_the_repeats():
    assert summarise([float(x) for x in range(11)]) == (5.0, 1.0, 9.0, 11)


def test_a_long_call_is_repeated_less_often_within_the_bounds():
    plan = Plan(least=5, most=100, seconds=0.15)
    assert [plan.repeats(ms) for ms in (0.01, 3.0, 1000.0)] == [100, 50, 5]


def test_calls_go_over_the_inputs_in_rotation():
    seen = []
    time_calls(seen.append, ["a", "b", "c"], Plan(warmup=1, least=4, most=4), CPU)
    assert "".join(seen) == "abc" * 2 + "a"


# failures are rows


def failing(error: Exception) -> Candidate:
    def make(problem: Problem) -> Calls:
        def fail(given: object) -> object:
            raise error

        return Calls(lambda _: None, fail)

    return Candidate("broken", "fails in its step", make)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("no /home/someone/kernel.py\nsecond line")]
)
def test_a_candidate_that_fails_is_a_row_that_says_so_without_paths(error):
    forward, step = measuring.measure(failing(error), Problem(SMALL, torch.float32, CPU), RATES, QUICK)
    assert forward.status == "measured"
    assert (step.status, step.kind, step.median_ms) == ("failed", "forward+backward", None)
    assert step.note.startswith(type(error).__name__)
    assert "someone" not in step.note
    assert "second line" not in step.note
    assert "failed: " + step.note in table([forward, step])


def test_what_would_need_more_memory_than_is_free_is_skipped(monkeypatch):
    monkeypatch.setattr(measuring, "free_bytes", lambda _: 25 * SMALL.N * SMALL.K)
    forward, step = measuring.measure(candidates()["plain"], Problem(SMALL, torch.float32, CPU), RATES, QUICK)
    assert forward.status == "measured"
    assert step.status == "skipped"
    assert "would need about" in step.note


def test_the_compiler_is_spared_the_largest_bank():
    problem = Problem(Shape(2, 3, 2**16), torch.float32, CPU)
    rows = measuring.measure(candidates()["compiled"], problem, RATES, QUICK)
    assert [row.status for row in rows] == ["skipped", "skipped"]


# on a GPU: which rows there are, with the device's own parts replaced


@pytest.fixture
def gpu_problem(monkeypatch: pytest.MonkeyPatch) -> Problem:
    """A problem that says it is on a GPU; calls take 2 ms, replays 1 ms, and 1000 bytes."""
    problem = Problem(SMALL, torch.float32, CPU)
    problem.device = torch.device("cuda")
    monkeypatch.setattr(measuring, "free_bytes", lambda _: 2**40)
    monkeypatch.setattr(measuring, "release", lambda _: None)
    monkeypatch.setattr(measuring, "peak_bytes", lambda run: run() and 1000)
    monkeypatch.setattr(measuring, "time_calls", lambda *_: Timing(2.0, 1.9, 2.1, 5))
    monkeypatch.setattr(measuring, "time_replays", lambda *_: Timing(1.0, 0.9, 1.1, 5))
    return problem


def working(**options: object) -> Candidate:
    return Candidate("works", "nothing", lambda _: Calls(lambda given: given, lambda given: given), **options)


def test_a_pass_is_timed_call_by_call_and_by_replays_with_its_memory(gpu_problem):
    rows = measuring.measure(working(), gpu_problem, RATES, QUICK)
    assert [(row.kind, row.timed_by, row.median_ms) for row in rows] == [
        (kind, by, ms) for kind in KINDS for by, ms in (("events", 2.0), ("graph", 1.0))
    ]
    for row in rows:
        sizes = (SMALL, row.kind, 4)
        assert row.peak_bytes == 1000
        assert row.memory_ratio == pytest.approx((1000 + held_bytes(*sizes)) / tensor_bytes(*sizes))


def test_a_graph_that_cannot_be_recorded_leaves_the_other_time_standing(gpu_problem, monkeypatch):
    def refuse(*_):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(measuring, "time_replays", refuse)
    rows = measuring.measure(working(), gpu_problem, RATES, QUICK)
    assert [(row.timed_by, row.status) for row in rows] == [("events", "measured"), ("graph", "failed")] * 2
    assert "not permitted" in rows[1].note


def test_no_graph_is_tried_where_it_may_not_or_need_not_be(gpu_problem, monkeypatch):
    rows = measuring.measure(working(in_graph=False), gpu_problem, RATES, QUICK)
    assert [row.timed_by for row in rows] == ["events"] * 2
    monkeypatch.setattr(measuring, "time_calls", lambda *_: Timing(50.0, 49.0, 51.0, 5))
    assert [row.timed_by for row in measuring.measure(working(), gpu_problem, RATES, QUICK)] == ["events"] * 2


# rows


@pytest.mark.usefixtures("_green")
def test_rows_are_written_as_they_come_and_a_stopped_run_goes_on(monkeypatch, tmp_path, capsys):
    path = tmp_path / "deep" / "kernels.csv"
    names = ["plain", "sdpa", *OURS]
    asked = ["bench", "kernels", "--quick", "--candidates", *names, "--out", str(path)]
    measured, honest = [], command.measure

    def stopped(candidate, problem, *args):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append((candidate.name, problem.shape))
        return honest(candidate, problem, *args)

    monkeypatch.setattr(command, "measure", stopped)
    with pytest.raises(KeyboardInterrupt):
        main(asked)
    before = path.read_text()
    assert len(read(path)) == 3 * len(KINDS)

    def counted(candidate, problem, *args):
        measured.append((candidate.name, problem.shape))
        return honest(candidate, problem, *args)

    monkeypatch.setattr(command, "measure", counted)
    assert main([*asked, "--resume"]) == 0
    assert measured == [(name, shape) for shape in QUICK_SHAPES for name in names]
    assert path.read_text().startswith(before)
    rows = read(path)
    assert [(row.candidate, row.shape, row.kind) for row in rows] == [
        (name, shape, kind) for shape in QUICK_SHAPES for name in names for kind in KINDS
    ]
    assert all(row.status == "measured" and 0 < row.p10_ms <= row.median_ms <= row.p90_ms for row in rows)
    shown = capsys.readouterr().out
    assert "the machine: copy" in shown
    assert all(f"N, m, K = {shape}; floor in ms" in shown for shape in QUICK_SHAPES)
    with path.open(newline="") as file:
        line = next(csv.DictReader(file))
    assert line["command"] == "ddcl bench kernels --quick --candidates plain sdpa readout:eager operation:eager"
    assert (line["dtype"], line["torch"], line["tests"]) == ("float32", torch.__version__, "not run in this test")
    assert main(asked) == 0  # without --resume the record is begun anew
    assert len(read(path)) == len(rows)


@pytest.mark.usefixtures("_green")
def test_sizes_and_candidates_can_be_chosen(tmp_path):
    path = tmp_path / "kernels.csv"
    asked = ["--shapes", "2^5,8,3", "--candidates", "operation:eager", "--out", str(path)]
    assert main(["bench", "kernels", "--quick", *asked]) == 0
    assert {(row.candidate, row.shape) for row in read(path)} == {("operation:eager", Shape(32, 8, 3))}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--candidates", "cuda"], "there is no candidate 'cuda'; known: plain, compiled, sdpa"),
        (["--dtype", "float64"], "dtype: got 'float64', expected one of bfloat16"),
        (["--shapes", "64"], "shape: got '64', expected N,m,K"),
    ],
)
def test_what_is_not_known_is_answered_with_what_is(asked, told, capsys):
    assert main(["bench", "kernels", *asked]) == 2
    assert told in capsys.readouterr().err


def test_a_row_survives_the_file(tmp_path):
    rows = [
        blank("plain", SMALL, "bfloat16", "forward", RATES, timed_by="graph", median_ms=0.123456, repeats=7),
        blank("sdpa", SMALL, "float32", "forward+backward", RATES, status="failed", note='a "quoted", note'),
    ]
    append(rows, tmp_path / "rows.csv", {"commit": "abc"})
    first, second = read(tmp_path / "rows.csv")
    assert first == replace(rows[0], median_ms=0.12346, floor_ms=float(f"{rows[0].floor_ms:.5g}"))
    assert (second.note, second.median_ms, second.repeats) == (rows[1].note, None, None)
    assert first.share_of_floor == pytest.approx(floor_ms(SMALL, "forward", 2, RATES) / 0.123456, rel=1e-4)
    N, m, K = SMALL
    assert first.operations_per_second == pytest.approx(4 * N * K * m / 0.12346e-3)
    assert first.intensity == pytest.approx(K)  # 4 N K m operations over 4 N m bytes
    assert second.intensity == pytest.approx(14 * K / 20)
