"""How far long work has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Report = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""

BAR_WIDTH = 24
ON_TERMINAL, ELSEWHERE = 0.1, 10.0
"""Seconds between two reports; into a file, work that ends sooner leaves no line at all."""


class ProgressBar:
    """Writes share done, rate and time left whenever enough time has passed since it last did."""

    def __init__(self, total: int, unit: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.unit, self.stream, self.clock = total, unit, stream, clock
        self.terminal = stream.isatty()
        self.began = self.last = clock()
        self.before: int | None = None
        self.written = 0
        self.note = ""
        """What else is to be seen at the end of the line; the caller sets it."""

    def __call__(self, done: int, total: int) -> None:
        """Report that so much is done; what was done at the first call counts for no rate."""
        now, self.total = self.clock(), total
        if self.before is None:
            self.before, self.began = done, now
        finished = done >= total and self.written > 0
        if finished or now - self.last >= (ON_TERMINAL if self.terminal else ELSEWHERE):
            self.last = now
            self._write(self._line(done, now))

    def close(self) -> None:
        """End the line, so that what is printed next starts on its own."""
        if self.terminal and self.written:
            self.stream.write("\n")
            self.stream.flush()

    def _line(self, done: int, now: float) -> str:
        share = done / self.total if self.total else 1.0
        line = f"{share:4.0%}  {done} of {self.total} {self.unit}"
        fresh, passed = done - (self.before or 0), now - self.began
        if fresh > 0 and passed > 0:
            rate = fresh / passed
            line += f", {rate:.3g}/s, {_clock_time((self.total - done) / rate)} left"
        line += f"; {self.note}" if self.note else ""
        return f"[{'#' * round(share * BAR_WIDTH):<{BAR_WIDTH}}] {line}" if self.terminal else line

    def _write(self, line: str) -> None:
        # spaces over the rest of a longer line before
        self.stream.write(f"\r{line:<{self.written}}" if self.terminal else f"{line}\n")
        self.stream.flush()
        self.written = len(line)


@contextmanager
def progress_bar(
    total: int, unit: str = "steps", *, show: bool = True, stream: TextIO | None = None
) -> Iterator[Report]:
    """A function to call with how much is done and how much there is; the reports go to stderr.

    Args:
        total: how much there is to do.
        unit: of what, in the plural.
        show: False: nothing is written.
        stream: where to write instead.

    Example:
        >>> from ddcl.data import progress_bar
        >>> with progress_bar(2, "texts", show=False) as report:
        ...     for done in range(2):
        ...         report(done + 1, 2)
    """
    if not show:
        yield _silent
        return
    bar = ProgressBar(total, unit, stream if stream is not None else sys.stderr)
    try:
        yield bar
    finally:
        bar.close()


@contextmanager
def reporting(progress: bool | Report, total: int, unit: str) -> Iterator[Report]:
    """What an argument ``progress`` asks for: a bar, nothing, or a function of the caller's own."""
    if callable(progress):
        yield progress
    else:
        with progress_bar(total, unit, show=progress) as report:
            yield report


def _silent(done: int, total: int) -> None:  # noqa: ARG001
    return


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
