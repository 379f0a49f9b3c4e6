"""The explorer in a real browser: typing, reading, naming, warming, on a laptop and on a phone."""

from __future__ import annotations

import os
import re
import shutil
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NEEDED = ("pyarrow", "safetensors", "transformers", "starlette", "uvicorn", "sklearn")
pytestmark = [
    pytest.mark.skipif(
        any(find_spec(one) is None for one in NEEDED) and not os.environ.get("DDCL_NEEDS_BROWSER"),
        reason="needs the extra ddcl[explore]",
    ),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
PHONE = (390, 844)
LAPTOP = (1280, 800)
NAME = "<b>lost</b> & \"found\" 'cards'"
COLOURS_DRAWN = """() => {
  const map = document.getElementById('map');
  const dots = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
  const found = new Set();
  for (let at = 0; at < dots.length; at += 4) if (dots[at + 3] > 200) found.add(dots.slice(at, at + 3).join());
  return found.size;
}"""
TURN = """(position) => {
  const slider = document.getElementById('slider');
  slider.value = position;
  slider.dispatchEvent(new Event('input'));
}"""


@contextmanager
def served(folder):
    """A server over a run folder, from nothing to its end."""
    import ddcl
    from ddcl.explorer import ExploredRun, LocalServer, address_of, application, listen

    with listen() as listening:
        app = application(ExploredRun(ddcl.load(folder)))
        server = LocalServer(app, listening, app.state.close)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield address_of(listening)
        finally:
            server.stop()
            thread.join()


@pytest.fixture(scope="module")
def texts_folder(tmp_path_factory):
    from explored_runs import text_run

    folder = tmp_path_factory.mktemp("explored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        return text_run(folder)


@pytest.fixture(scope="module")
def address(texts_folder):
    with served(texts_folder) as found:
        yield found


@pytest.fixture
def expect(browser):
    """Playwright's own assertions, which wait for what is to come."""
    from playwright.sync_api import expect

    return expect


@pytest.fixture
def explorer(open_page, address):
    """Opens the explorer and waits until it is whole."""

    def opened(where=address, **options):
        page = open_page(where, **({"size": LAPTOP} | options))
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def titles(page):
    return page.locator("#list .name").all_inner_texts()


def shares(page):
    return [int(one.strip("<% ")) for one in page.locator("#mixture .share").all_inner_texts()]


def test_it_opens_whole_and_the_map_is_drawn(explorer, screenshots):
    page = explorer()
    assert page.inner_text("#run-name") == "messages"
    assert page.inner_text("#verdict") in ("healthy", "not healthy")
    assert len(titles(page)) == 5
    assert page.evaluate(COLOURS_DRAWN) > 20
    assert page.locator("#table tbody tr").count() == 25
    page.screenshot(path=screenshots / "explorer.png", full_page=True)


def test_a_typed_sentence_gets_its_mixture_its_class_its_words_and_rows_like_it(explorer, screenshots):
    page = explorer()
    page.locator("#text").press_sequentially("my card was declined", delay=15)
    page.wait_for_selector("#words")
    assert sum(shares(page)) == pytest.approx(100, abs=3)
    assert page.inner_text("#predicted") == "bank"
    assert page.inner_text("#words").split() == ["my", "card", "was", "declined"]
    assert page.locator("#examples .text").first.inner_text() == "my card was declined"
    assert page.inner_text("#took").endswith(" ms")
    page.screenshot(path=screenshots / "explorer-read.png", full_page=True)
    page.fill("#text", "")
    page.wait_for_selector("#mixture", state="detached")


def test_a_prototype_that_is_clicked_shows_its_rows(explorer, expect):
    page = explorer()
    page.locator("#list .entry").first.click()
    assert page.locator("#card-examples .text").count() > 0
    assert page.locator("#card-neighbours li").count() == 3
    page.click("#card-rows")
    page.wait_for_selector("#rows-prototype")
    size = page.locator("#card .figures dd").first.inner_text()
    expect(page.locator("#rows-count")).to_have_text(f"{size} of 60")
    page.click("#card-close")
    assert page.locator("#list .entry").first.is_visible()


def test_a_click_on_the_map_chooses_a_prototype_and_the_keys_do_too(explorer):
    page = explorer()
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    chosen = page.get_attribute("#card", "data-prototype")
    page.click("#card-close")
    place = page.evaluate(
        """async (number) => {
          const { onScreen, scene } = await import('./scene.js');
          return onScreen(scene.shown.places[number]);
        }""",
        int(chosen),
    )
    page.locator("#map").click(position={"x": place[0], "y": place[1]})
    assert page.get_attribute("#card", "data-prototype") == chosen
    assert page.inner_text("#tip").count("rows") == 1


def test_a_name_survives_a_restart_and_is_text(explorer, expect, texts_folder, tmp_path):
    import ddcl

    folder = shutil.copytree(texts_folder, tmp_path / "copy")
    with served(folder) as where:
        page = explorer(where)
        page.locator("#list .edit").nth(1).click()
        page.keyboard.type("thought better of")
        page.keyboard.press("Escape")
        page.locator("#list .edit").nth(1).click()
        page.keyboard.type(NAME)
        page.keyboard.press("Enter")
        expect(page.locator("#list .name").nth(1)).to_have_text(NAME)
    with served(folder) as where:
        page = explorer(where)
        assert titles(page)[1] == NAME
        page.locator("#list .entry").nth(1).click()
        page.fill("#card .name-field", "")
        page.keyboard.press("Enter")
        page.click("#card-close")
        expect(page.locator("#list .name").nth(1)).not_to_have_text(NAME)
    assert ddcl.load(folder).names == [None] * 5


def test_prototypes_merge_as_the_slider_is_turned_and_part_again(explorer, texts_folder, screenshots):
    from ddcl.fitting import RunFolder

    page = explorer()
    page.fill("#text", "my card was declined")
    page.wait_for_selector("#mixture")
    assert page.locator("#as-fitted").is_hidden()
    page.evaluate(TURN, 1000)
    places = RunFolder(texts_folder).phases()["distinct"][-1]
    assert places < 5
    assert f"rests in {places} of 5 places" in page.inner_text("#temperature .said")
    assert len(shares(page)) == places
    assert " merged" in page.inner_text("#mixture")
    assert page.is_checked("input[value=plane]")
    page.screenshot(path=screenshots / "explorer-warm.png", full_page=True)
    page.click("#as-fitted")
    assert "As fitted" in page.inner_text("#temperature .said")
    assert " merged" not in page.inner_text("#mixture")
    assert page.is_checked("input[value=neighbours]")


def test_the_page_mixes_as_the_library_does(explorer, texts_folder):
    import ddcl

    fitted = ddcl.load(texts_folder)
    expected = fitted.mixture("the cat sat")[0].tolist()
    found = explorer().evaluate(
        """async (temperature) => {
          const { mixture } = await import('./mixing.js');
          const headers = { 'Content-Type': 'application/json' };
          const body = JSON.stringify({ text: 'the cat sat' });
          const answer = await (await fetch('api/explain', { method: 'POST', headers, body })).json();
          return mixture(answer.squared_distances, temperature);
        }""",
        fitted.temperature,
    )
    assert found == pytest.approx(expected, abs=2e-5)


def test_hostile_texts_are_shown_as_text(explorer, expect):
    from explored_runs import LONG, RIGHT_TO_LEFT, SCRIPT

    page = explorer()
    page.fill("#rows-search", "<script>")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    assert page.inner_text("td.c-text") == SCRIPT
    page.click("td.c-row button")
    page.wait_for_selector("#words")
    assert page.input_value("#text") == SCRIPT
    for text in (RIGHT_TO_LEFT, LONG):
        page.fill("#text", text)
        expect(page.locator("#examples .text").first).to_have_text(re.compile(re.escape(text[:9])))
    assert page.title() == "messages · ddcl explorer"
    assert page.locator("main script, main img").count() == 0


def test_rows_are_found_filtered_by_certainty_and_paged(explorer, expect):
    page = explorer()
    page.click("#page-on")
    expect(page.locator("#page-number")).to_have_text("26 to 50")
    page.select_option("#rows-order", "share")
    page.fill("#rows-most", "99")
    expect(page.locator("#page-number")).to_have_text(re.compile("^1 to"))
    page.select_option("#rows-label", "bank")
    expect(page.locator("td.c-label").filter(has_text=re.compile("^<i>home"))).to_have_count(0)
    found = [int(one.strip("<% \n")) for one in page.locator("td.c-share").all_inner_texts()]
    assert found == sorted(found)


def test_it_is_usable_on_a_phone_and_in_the_dark(explorer, screenshots):
    page = explorer(size=PHONE, dark=True)
    page.fill("#text", "my card was declined")
    page.wait_for_selector("#words")
    page.locator("#mixture button").first.tap()
    assert page.locator("#card-examples").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#map").bounding_box()["width"] > 300
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all(int(one) < 60 for one in background.removeprefix("rgb(").rstrip(")").split(","))
    page.screenshot(path=screenshots / "explorer-phone.png", full_page=True)


def test_rows_of_embeddings_are_picked_by_number(explorer, expect, tmp_path):
    from explored_runs import vector_run

    with served(vector_run(tmp_path)) as where:
        page = explorer(where)
        assert page.locator("#text").count() == 0
        page.fill("#row", "4")
        page.wait_for_selector("#mixture")
        assert shares(page)[0] > 90
        assert page.locator("#examples .example").count() == 5
        page.fill("#row", "90")
        expect(page.locator("#notice")).to_have_text("There are rows from 0 to 89.")


def test_a_server_that_is_gone_is_said(explorer, expect, texts_folder, complaints):
    with served(texts_folder) as where:
        page = explorer(where)
    page.fill("#text", "my card")
    expect(page.locator("#notice")).to_have_text("The server does not answer any more: start `ddcl explore` again.")
    complaints.clear()  # the browser says so too
