"""Pages in a real browser: a headless Chromium of the machine's own, which tells of every complaint and every request.

A machine without one skips these tests, unless DDCL_NEEDS_BROWSER is set, as `.ci/run` does: there it is a failure.
Screenshots go to build/screenshots, or where DDCL_SCREENSHOTS says.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pages import HOSTILE, WIDE

LONG_LABEL = "balance_not_updated_after_cheque_or_cash_deposit"
"""The longest of Banking77: nothing in it is a place to break a line."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _missing(what: str) -> None:
    reason = f"{what}: pages are not opened"
    if os.environ.get("DDCL_NEEDS_BROWSER"):
        pytest.fail(f"{reason}, though DDCL_NEEDS_BROWSER is set")
    pytest.skip(reason)


def needs(*packages: str) -> None:
    """Go on only where these are installed."""
    for package in packages:
        if find_spec(package) is None:
            _missing(f"{package} is not installed")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, one for all tests."""
    needs("playwright")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        _missing(f"none of {', '.join(NAMES)} is on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # as root there is no sandbox to be had, and the pages are ours
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


def stays_here(url: str) -> bool:
    """Whether a request for it leaves the machine."""
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob") or (
        parts.scheme in ("http", "ws") and parts.hostname == "127.0.0.1"
    )


@pytest.fixture
def complaints() -> list[str]:
    """What pages had to complain of: errors on the console, exceptions, requests that leave the machine.

    A test that provokes one on purpose takes it out of the list.
    """
    return []


@pytest.fixture
def open_page(browser: Any, complaints: list[str]) -> Iterator[Callable[..., Any]]:
    """Open an address or a file: ``open_page(where, size=WIDE, dark=False, javascript=True)`` gives Playwright's page.

    At the end the test fails if any of its pages complained.
    """
    contexts = []

    def opened(where: str | Path, *, size: tuple[int, int] = WIDE, dark: bool = False, javascript: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            java_script_enabled=javascript,
            has_touch=size[0] < 600,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: complaints.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.on(
            "request", lambda asked: None if stays_here(asked.url) else complaints.append(f"leaves here: {asked.url}")
        )
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(where.resolve().as_uri() if isinstance(where, Path) else where)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures of pages are kept: ``page.screenshot(path=screenshots / "report.png", full_page=True)``."""
    root = Path(__file__).parents[2] / "build" / "screenshots"
    folder = Path(os.environ.get("DDCL_SCREENSHOTS") or root)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of labelled texts, some of them hostile, with two levels."""
    needs("pyarrow", "safetensors", "transformers", "jinja2")
    from tiny_encoder import write_encoder

    from ddcl.cli import main

    folder = tmp_path_factory.mktemp("hostile")
    encoder = write_encoder(folder / "tiny")
    plain = ["my card was declined", "the cat sat", "my card", "the cats sat the cats"] * 12
    places = {plain[0]: LONG_LABEL} | {text: '<b>home</b> & "garden"' for text in (*HOSTILE, *plain) if "cat" in text}
    rows = [{"text": text, "place": places.get(text, "bank")} for text in (*HOSTILE, *plain)]
    data = folder / "messages.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = ["--labels", "place", "--levels", "6", "2", "--encoder", str(encoder), "--epochs", "3", "--text", "text"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        assert main(["fit", str(data), "--out", str(folder / "run"), *given]) == 0
    return folder / "run"
