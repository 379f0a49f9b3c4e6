"""The report in a real browser: it loads from disk, tells the verdict first, draws, and takes texts for text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import HOSTILE, NARROW, contrast, fits


@pytest.fixture(scope="module")
def report(hostile_run):
    return hostile_run / "report.html"


@pytest.fixture(scope="module")
def expect(browser):
    """Playwright's own assertions, which wait for what is to come."""
    from playwright.sync_api import expect

    return expect


def test_where_pages_must_be_opened_a_missing_package_is_a_failure(request, monkeypatch):
    fixtures = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    fixtures.needs("json")
    monkeypatch.setenv("DDCL_NEEDS_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_package is not installed"):
        fixtures.needs("no_such_package")
    monkeypatch.delenv("DDCL_NEEDS_BROWSER")
    with pytest.raises(pytest.skip.Exception, match="no_such_package is not installed"):
        fixtures.needs("no_such_package")


def test_the_verdict_comes_first_and_everything_follows(open_page, report, screenshots):
    page = open_page(report)
    headings = page.locator("h2").all_inner_texts()
    assert re.match(r"(✓ Healthy|! Not healthy)", headings[0])
    order = ["Comparison", "Training", "Map", "Prototypes", "Assignment", "Phases", "Hierarchy", "Outliers"]
    assert headings[1:9] == order
    assert page.locator("#load pre").inner_text().startswith("import ddcl\nfitted = ddcl.load('run')")
    assert str(report.parents[1]) not in page.content(), "where the run, its data and its encoder lie is told nobody"
    assert fits(page)
    page.screenshot(path=screenshots / "report-wide.png", full_page=True)


def test_the_map_draws_rows_in_several_colours_and_says_what_is_pointed_at(open_page, report):
    page = open_page(report)
    page.locator("#map").scroll_into_view_if_needed()
    drawn = page.evaluate(
        """[...document.querySelectorAll('#map circle')].map(
            (one) => [getComputedStyle(one).fill, one.getBoundingClientRect().width]
        )"""
    )
    assert len(drawn) == 54
    assert len({colour for colour, _ in drawn}) > 1
    assert all(width > 2 for _, width in drawn)
    row = page.evaluate(
        "JSON.parse(document.getElementById('data').textContent).rows.findIndex((r) => r.text.includes('{{ 7'))"
    )
    box = page.locator("#map circle").nth(row).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator("#tip").is_visible()
    said = page.locator("#tip").inner_text()
    assert re.search(r"label (bank|balance_\w+|<b>home</b> & \"garden\")", said)
    assert re.search(r"\d+ % \d+ ", said)


def test_clicking_a_prototype_highlights_it_and_goes_to_its_card(open_page, report):
    page = open_page(report)
    page.locator("#map .marks g[data-p='0']").click()
    assert page.evaluate("location.hash") == "#p0"
    assert page.locator(".card.own").get_attribute("id") == "p0"
    lit = page.locator("#map circle.own").count()
    assert 0 < lit < page.locator("#map circle").count()
    page.keyboard.press("Escape")
    assert page.locator("#map circle.own").count() == 0


def test_a_prototype_can_be_gone_to_again_and_again(open_page, report, expect):
    page = open_page(report)
    link = page.locator(".outliers a").first
    card = page.locator(link.get_attribute("href"))
    link.click()
    page.fill("#search", "no such word anywhere")
    assert not card.is_visible()
    link.click()
    expect(card).to_be_in_viewport()
    mark = page.locator(f"#map .marks g[data-p='{card.get_attribute('id')[1:]}']")
    for _ in range(2):
        page.evaluate("scrollTo(0, 0)")
        expect(card).not_to_be_in_viewport()
        mark.click()
        expect(card).to_be_in_viewport()


def test_the_layout_can_be_changed_and_cards_searched(open_page, report):
    page = open_page(report)
    before = page.locator("#map circle").first.get_attribute("cx")
    page.select_option("#layout", "pca")
    assert page.locator("#map circle").first.get_attribute("cx") != before
    page.fill("#search", "no such word anywhere")
    assert page.locator(".card:visible").count() == 0
    page.fill("#search", "3")
    assert [card.get_attribute("id") for card in page.locator(".card:visible").all()] == ["p3"]


def test_pointing_at_a_panel_reads_its_numbers(open_page, report):
    page = open_page(report)
    page.locator("[data-panel='0'] svg").hover()
    assert re.match(r"epoch \d: L [\d.]+, R ", page.locator("[data-panel='0'] .reading").inner_text())


def test_hostile_texts_are_text_and_do_nothing(open_page, report):
    page = open_page(report)
    assert page.evaluate("window.harm") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    rows = page.evaluate("JSON.parse(document.getElementById('data').textContent).rows.map((row) => row.text)")
    assert HOSTILE[:4] == tuple(rows[:4])
    assert rows[4] == "control ␇ ␛[31m characters \u2028 and \u2029 my card"
    assert rows[5].endswith("…")
    assert len(rows[5]) < 300
    shown = page.locator("body").inner_text()
    assert '<b>home</b> & "garden"' in shown
    assert any(text[:40] in shown for text in HOSTILE[:3])
    page.locator("#map").scroll_into_view_if_needed()
    said = set()
    for index in range(6):
        box = page.locator("#map circle").nth(index).bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        said.add(page.locator("#tip .said").text_content())
    assert rows[0] in said  # of rows in one place the first is told
    assert said <= set(rows)
    assert page.locator("img").count() == 0
    assert page.evaluate("window.harm") is None


def test_it_is_usable_on_a_phone(open_page, report, screenshots):
    page = open_page(report, size=NARROW)
    assert page.locator(".card .figures", has_text="mostly balance_not_updated_after_cheque_or_cash_deposit").count()
    assert fits(page)
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    assert 300 < box["width"] <= 390
    circle = page.locator("#map circle").first.bounding_box()
    page.touchscreen.tap(circle["x"] + 2, circle["y"] + 2)
    tip = page.locator("#tip").bounding_box()
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 390
    page.screenshot(path=screenshots / "report-phone.png", full_page=True)
    page.set_viewport_size({"width": 320, "height": 640})
    assert fits(page), "the smallest screen that guidelines ask for"


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_in_light_and_dark(open_page, report, screenshots, dark):
    page = open_page(report, dark=dark)
    red, green, blue = map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert (max(red, green, blue) < 60) if dark else (min(red, green, blue) > 200)
    for selector in ("main p", "#verdict h2", "#verdict dt", ".card .figures", ".near a", "nav a", "figcaption", "td"):
        assert contrast(page, selector) >= 4.5, selector
    page.screenshot(path=screenshots / f"report-{'dark' if dark else 'light'}.png")


def test_without_scripts_the_verdict_the_map_and_all_cards_are_there(open_page, report):
    page = open_page(report, javascript=False)
    assert page.locator("#verdict h2").is_visible()
    assert page.locator("#map circle").count() == 54
    assert page.locator(".card").count() == page.locator(".card:visible").count() == 6
    assert not page.locator("#search").is_visible()
