"""The fixtures themselves: a page that misbehaves is noticed."""

from __future__ import annotations

import pytest


def written(tmp_path, body):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><html><head><link rel=icon href='data:,'></head><body>{body}</body></html>")
    return path


def test_a_page_that_behaves_passes(open_page, tmp_path):
    page = open_page(written(tmp_path, "<h1>hello</h1>"))
    assert page.inner_text("h1") == "hello"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('no')</script>", "console: no"),
        ("<script>throw new Error('broken')</script>", "exception: broken"),
        ("<img src='http://192.0.2.1/pixel.png'>", "leaves here: http://192.0.2.1/pixel.png"),
        ("<script>alert('hi')</script>", "dialog: hi"),
    ],
)
def test_a_page_that_misbehaves_is_noticed(open_page, complaints, tmp_path, body, complaint):
    page = open_page(written(tmp_path, ""))
    page.route("http://192.0.2.1/**", lambda route: route.abort())
    page.goto(written(tmp_path, body).as_uri())
    assert complaint in complaints
    complaints.clear()
