"""The roofline picture of a record."""

from __future__ import annotations

import pytest

from ddcl.experiments.kernels.record import append, blank
from ddcl.experiments.kernels.shapes import KINDS, SHAPES, Rates, Shape, floor_ms, operations
from ddcl.report.roofline import draw_roofline

pytest.importorskip("matplotlib")

RATES = Rates(copy=4e12, matrix=700e12)
SHARES = {"operation:triton": 0.8, "plain": 0.1}


@pytest.fixture
def record(tmp_path):
    """Two candidates at every size, one of them twice as slow by events; a third failed."""
    rows = []
    for shape in SHAPES:
        for kind in KINDS:
            for name, share in SHARES.items():
                ms = floor_ms(shape, kind, 2, RATES) / share
                rows.append(blank(name, shape, "bfloat16", kind, RATES, timed_by="events", median_ms=2 * ms))
                rows.append(blank(name, shape, "bfloat16", kind, RATES, timed_by="graph", median_ms=ms))
            rows.append(blank("sdpa", shape, "bfloat16", kind, RATES, status="failed", note="out of memory"))
    path = tmp_path / "kernels.csv"
    append(rows, path, {"device": "a processor", "gpu": "a GPU"})
    return path


def curve(axes, name):
    (line,) = (line for line in axes.lines if line.get_label() == name)
    return dict(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_markers_stand_at_intensity_and_rate_of_every_size(record):
    figure = draw_roofline(record)
    for axes, kind, per_prototype in zip(figure.axes, KINDS, (1.0, 1.4), strict=True):
        for name, share in SHARES.items():
            points = curve(axes, name)
            assert len(points) == len(SHAPES)
            for shape in SHAPES:
                at = next(x for x in points if x == pytest.approx(per_prototype * shape.K))
                seconds = 1e-3 * floor_ms(shape, kind, 2, RATES) / share
                assert points[at] == pytest.approx(operations(shape, kind) / seconds / 1e12, rel=1e-3)
    assert figure.get_suptitle() == "The readout against what the machine allows: a GPU, bfloat16"


def test_no_marker_at_a_share_of_the_floor_stands_above_the_ceilings(record):
    for axes in draw_roofline(record).axes:
        for name, share in SHARES.items():
            for x, y in curve(axes, name).items():
                assert y == pytest.approx(share * min(x * RATES.copy, RATES.matrix) / 1e12, rel=1e-3)
        roof = axes.lines[0]
        (_, x_ridge, _), (_, y_ridge, y_flat) = roof.get_xdata(), roof.get_ydata()
        assert x_ridge == pytest.approx(RATES.matrix / RATES.copy)
        assert y_ridge == y_flat == pytest.approx(700)


def test_what_failed_is_not_drawn_and_asking_for_it_names_what_is(record):
    labels = {line.get_label() for line in draw_roofline(record).axes[0].lines}
    assert set(SHARES) <= labels
    assert "sdpa" not in labels
    with pytest.raises(ValueError, match=r"candidates: sdpa not measured; the record has .*'operation:triton'"):
        draw_roofline(record, candidates=["sdpa"])
    chosen = draw_roofline(record, candidates=["plain"])
    assert "operation:triton" not in {line.get_label() for line in chosen.axes[0].lines}


def test_every_size_is_named_in_both_panels(record):
    for axes in draw_roofline(record).axes:
        names = {text.get_text() for text in axes.texts}
        assert {str(shape) for shape in SHAPES} <= names


def test_a_record_of_one_size_is_drawn_too(tmp_path):
    row = blank("plain", Shape(64, 8, 5), "float32", "forward", RATES, timed_by="clock", median_ms=1.0)
    step = blank("plain", Shape(64, 8, 5), "float32", "forward+backward", RATES, timed_by="clock", median_ms=2.0)
    append([row, step], tmp_path / "one.csv", {"device": "a processor", "gpu": ""})
    figure = draw_roofline(tmp_path / "one.csv", tmp_path / "one.png")
    assert figure.get_suptitle().endswith("a processor, float32")
    assert (tmp_path / "one.png").stat().st_size > 5000


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_record_gives_the_same_file(record, tmp_path, suffix):
    paths = [tmp_path / name / f"roofline.{suffix}" for name in ("a", "b")]
    for path in paths:
        draw_roofline(record, path, title="Twice")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_another_file_type_is_refused_by_name(record, tmp_path):
    with pytest.raises(ValueError, match=r"path: got '.*roofline.gif', expected a file ending in .png, .svg, .pdf"):
        draw_roofline(record, tmp_path / "roofline.gif")


@pytest.mark.usefixtures("_without_matplotlib")
def test_without_matplotlib_the_message_names_the_extra(record):
    with pytest.raises(ImportError, match=r"pip install 'ddcl\[report\]'"):
        draw_roofline(record)
