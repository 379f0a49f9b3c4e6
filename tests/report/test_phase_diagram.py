"""The picture of a phase diagram."""

from __future__ import annotations

import pytest
import torch

from ddcl.functional.phases.diagram import PhaseDiagram, phase_diagram
from ddcl.report.phase_diagram import draw_phase_diagram, principal_coordinate

pytest.importorskip("matplotlib")


@pytest.fixture
def diagram() -> PhaseDiagram:
    z = torch.tensor([[-5.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [5.0, -1.0]], dtype=torch.float64)
    return phase_diagram(z, 4, relative=[1.1, 0.9, 0.3, 0.05, 0.01, 0.005])


def test_both_panels_show_the_diagram(diagram):
    counts, branches = draw_phase_diagram(diagram).axes
    steps = counts.lines[0]
    assert list(steps.get_ydata()) == diagram.distinct.tolist()
    assert list(steps.get_xdata()) == diagram.relative.tolist()
    assert branches.get_xlim() == (1.1, 0.005)  # falling to the right
    marks = [line for line in branches.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in marks] == [split.relative for split in diagram.splits]
    curves = [line for line in branches.lines if len(line.get_xdata()) == len(diagram.relative)]
    assert len(curves) == 4
    # a split is marked where its group still is, on the curve
    first = marks[0]
    assert float(first.get_ydata()[0]) == pytest.approx(float(curves[0].get_ydata()[0]))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_diagram_gives_the_same_file(diagram, tmp_path, suffix):
    paths = [tmp_path / name / f"phases.{suffix}" for name in ("a", "b")]
    for path in paths:
        draw_phase_diagram(diagram, path, title="Twice")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(paths[0].read_bytes()) > 5000


def test_the_coordinate_is_the_axis_of_largest_spread_in_units_of_it(diagram):
    coordinate = principal_coordinate(diagram)
    assert coordinate.shape == (6, 4)
    assert float(coordinate[-1].square().mean()) == pytest.approx(1)
    coldest = diagram.positions[-1] - diagram.positions[-1].mean(0)
    largest = torch.linalg.eigvalsh(coldest.mT @ coldest / 4)[-1]
    reached = (coordinate[-1] * largest.sqrt()).square().sum() / 4
    assert float(reached) == pytest.approx(float(largest))
    torch.testing.assert_close(coordinate[0], torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-6)


def test_a_bank_that_never_splits_is_drawn_too(tmp_path):
    merged = phase_diagram(torch.tensor([[-1.0], [1.0]]), 3, relative=[1.5, 1.2])
    draw_phase_diagram(merged, tmp_path / "merged.png")
    assert principal_coordinate(merged).abs().max() == 0


def test_another_file_type_is_refused_by_name(diagram, tmp_path):
    with pytest.raises(ValueError, match=r"path: got '.*phases.gif', expected a file ending in .png, .svg, .pdf"):
        draw_phase_diagram(diagram, tmp_path / "phases.gif")


@pytest.mark.usefixtures("_without_matplotlib")
def test_without_matplotlib_the_message_names_the_extra(diagram):
    with pytest.raises(ImportError, match=r"pip install 'ddcl\[report\]'"):
        draw_phase_diagram(diagram)
