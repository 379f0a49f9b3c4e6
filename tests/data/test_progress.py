"""Reports of how far work has come."""

from __future__ import annotations

import io

import pytest

from ddcl.data import progress, progress_bar
from ddcl.data.progress import ProgressBar, reporting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(stream, steps):
    """A bar fed with (second, done) of 100 texts."""
    clock = iter([0.0, *(float(second) for second, _ in steps)])
    bar = ProgressBar(100, "texts", stream, clock=lambda: next(clock))
    for _, done in steps:
        bar(done, 100)
    bar.close()
    return stream.getvalue()


def test_a_file_gets_a_line_every_ten_seconds_with_rate_and_time_left():
    said = run(io.StringIO(), [(0, 0), (5, 10), (10, 20), (15, 25), (20, 30), (21, 100)])
    assert said.splitlines() == [
        " 20%  20 of 100 texts, 2/s, 0:40 left",
        " 30%  30 of 100 texts, 1.5/s, 0:47 left",
        "100%  100 of 100 texts, 4.76/s, 0:00 left",
    ]


def test_short_work_leaves_no_line_in_a_file():
    assert run(io.StringIO(), [(0, 0), (9, 100)]) == ""


def test_what_was_done_before_counts_for_no_rate():
    assert "2/s, 0:30 left" in run(io.StringIO(), [(0, 20), (10, 40)])


def test_a_terminal_gets_one_line_written_over():
    said = run(Terminal(), [(0, 0), (1, 50), (2, 100)])
    assert said.startswith("\r[############            ]  50%")
    assert said.endswith("left\n")
    assert said.count("\n") == 1


def test_a_note_stands_at_the_end_of_the_line():
    stream, clock = io.StringIO(), iter([0.0, 10.0])
    bar = ProgressBar(4, "epochs", stream, clock=lambda: next(clock))
    bar.note = "usage 100%"
    bar(1, 4)
    assert stream.getvalue() == " 25%  1 of 4 epochs; usage 100%\n"


def test_hours_are_shown_where_there_are_hours():
    assert "2:45:00 left" in run(io.StringIO(), [(0, 0), (100, 1)])


def test_silence_on_request_and_a_function_of_ones_own(capsys):
    with progress_bar(3, show=False) as report:
        report(3, 3)
    seen = []
    with reporting(lambda *done: seen.append(done), 3, "texts") as report:
        report(3, 3)
    assert seen == [(3, 3)]
    assert capsys.readouterr().err == ""


def test_an_error_in_the_work_still_ends_the_line(monkeypatch):
    def fails(report):
        report(1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "ON_TERMINAL", 0.0)
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), progress_bar(2, "texts", stream=stream) as report:
        fails(report)
    assert stream.getvalue().endswith("texts\n")
