"""The explorer in a real browser: typing, reading, naming, warming, on a laptop and on a phone."""

from __future__ import annotations

import json
import os
import re
import shutil
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


# how many lines the widest share takes in each row of the table
LINES_OF_SHARES = """() => [...document.querySelectorAll('td.c-share')].map((cell) => {
  cell.lastChild.data = '100 %';
  const said = document.createRange();
  said.selectNode(cell.lastChild);
  return said.getClientRects().length + (cell.scrollWidth > cell.clientWidth ? 1 : 0);
})"""
# a row's place on the map that no prototype's disc is near, with its number
LONE_ROW = """async () => {
  const { onScreen, scene, discs } = await import('./scene.js');
  const { state } = await import('./state.js');
  const away = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
  const places = scene.shown.rows.map(onScreen);
  const all = discs();
  const lone = places.findIndex((place) => all.every((disc) => away(onScreen(disc.place), place) > disc.radius + 8));
  return { place: places[lone], row: state.map.rows[lone] };
}"""
FOCUSED = "document.activeElement.id || document.activeElement.className"


@contextmanager
def served(folder):
    """A server over a run folder, from nothing to its end."""
    import ddcl
    from ddcl.explorer import ExploredRun, LocalServer, application, listen

    app = application(ExploredRun(ddcl.load(folder)))
    with listen() as listening, LocalServer(app, listening, app.state.close).beside() as address:
        yield address


@pytest.fixture(scope="module")
def texts_folder(tmp_path_factory):
    from explored_runs import text_run

    folder = tmp_path_factory.mktemp("explored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDCL_CACHE", str(folder / "cache"))
        return text_run(folder)


@pytest.fixture(scope="module")
def vectors_folder(tmp_path_factory):
    from explored_runs import vector_run

    return vector_run(tmp_path_factory.mktemp("explored-vectors"))


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
    assert set(page.evaluate(LINES_OF_SHARES)) == {1}
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
    said = page.inner_text("#map-said")
    assert re.fullmatch(r"(?s).+, \d+ rows", said)
    assert page.inner_text("#tip").splitlines() == said.rsplit(", ", 1)
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#map-said") != said
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


def test_an_unhealthy_run_says_why(explorer, vectors_folder, tmp_path):
    folder = shutil.copytree(vectors_folder, tmp_path / "copy")
    config = json.loads((folder / "config.json").read_text())
    config["result"] |= {"healthy": False, "troubles": ["two prototypes are <b>one</b>", "no row is near the third"]}
    (folder / "config.json").write_text(json.dumps(config))
    with served(folder) as where:
        page = explorer(where)
        assert page.inner_text("#verdict") == "not healthy"
        assert page.locator("#troubles li").all_inner_texts() == config["result"]["troubles"]


def test_a_click_is_not_lost_while_a_name_is_kept(explorer, expect, texts_folder):
    import ddcl

    page = explorer()
    page.locator("#list .edit").first.click()
    page.keyboard.type("held")
    page.locator("#list .entry").last.hover()
    with page.expect_response("**/name"):
        page.mouse.down()
    page.wait_for_timeout(100)  # the page has had the answer
    page.mouse.up()
    expect(page.locator("#card")).to_be_visible()
    page.click("#card-close")
    expect(page.locator("#list .name").first).to_have_text("held")
    ddcl.load(texts_folder).rename(ddcl.load(texts_folder).names.index("held"), None)


def test_the_keyboard_never_loses_its_place(explorer, expect, texts_folder):
    import ddcl

    page = explorer()
    page.locator("#list .entry").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "card-title"
    page.locator("#card-neighbours button").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "card-title"
    page.focus("#card-close")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "entry"
    page.locator("#list .edit").nth(2).focus()
    for name in ("typed", ""):
        page.keyboard.press("Enter")
        page.keyboard.type(name) if name else page.keyboard.press("Delete")
        with page.expect_response("**/name"):
            page.keyboard.press("Enter")
        expect(page.locator("#list .edit").nth(2)).to_be_focused()
    assert ddcl.load(texts_folder).names == [None] * 5
    page.locator("#list .entry").first.click()
    page.locator("#card .name-field").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#card .name-field")).to_be_focused()


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
    undecided = re.search("As undecided as between ([0-9.]+) places|All of it in one place", page.inner_text("#answer"))
    assert float(undecided[1] or 1) <= places
    page.screenshot(path=screenshots / "explorer-warm.png", full_page=True)
    page.click("#as-fitted")
    assert "As fitted" in page.inner_text("#temperature .said")
    assert " merged" not in page.inner_text("#mixture")
    assert page.is_checked("input[value=neighbours]")
    page.locator("input[value=plane] + span").click()
    assert "Turn the temperature" in page.inner_text("#map-note")
    page.evaluate(TURN, 900)
    page.click("#as-fitted")
    assert page.is_checked("input[value=plane]")


def test_what_a_run_lacks_or_has_too_much_of_is_said(explorer):
    page = explorer()
    page.evaluate(
        """async () => {
          const { change, select, state } = await import('./state.js');
          const run = structuredClone(state.run);
          run.settings.levels = [5, 2];
          run.result.parents = [[0, 0, 1, 1, 1]];
          change({ run, phases: null, layout: 'plane' });
          select(0);
        }"""
    )
    assert "temperature" not in page.inner_text("#map-note")
    assert "Level 1: one of 2 groups, with" in page.locator("#card h3").all_inner_texts()


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


def test_it_is_usable_on_a_phone_and_in_the_dark(explorer, expect, screenshots):
    from explored_runs import TEXTS

    page = explorer(size=PHONE, dark=True)
    lone = page.evaluate(LONE_ROW)
    position = dict(zip("xy", lone["place"], strict=True))
    page.locator("#map").tap(position=position)
    expect(page.locator("#tip")).to_contain_text(TEXTS[lone["row"]][:20])
    assert page.locator("#card").is_hidden()
    page.locator("#map").tap(position=position)
    expect(page.locator("#card")).to_be_visible()
    assert page.locator("#tip").is_hidden()
    page.tap("#card-close")
    page.fill("#text", "my card was declined")
    page.wait_for_selector("#words")
    page.locator("#mixture button").first.tap()
    assert page.locator("#card-examples").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#map").bounding_box()["width"] > 300
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all(int(one) < 60 for one in background.removeprefix("rgb(").rstrip(")").split(","))
    page.screenshot(path=screenshots / "explorer-phone.png", full_page=True)


def test_rows_of_embeddings_are_picked_by_number(explorer, expect, vectors_folder):
    with served(vectors_folder) as where:
        page = explorer(where)
        assert page.locator("#text").count() == 0
        page.fill("#row", "4")
        page.wait_for_selector("#mixture")
        assert shares(page)[0] > 90
        assert page.locator("#examples .example").count() == 5
        page.fill("#row", "90")
        expect(page.locator("#notice")).to_have_text("There are rows from 0 to 89.")
        assert page.locator("#mixture").count() == 0
        page.fill("#row", "")
        expect(page.locator("#notice")).to_be_hidden()


def test_what_went_wrong_stands_until_it_goes_right(explorer, expect, texts_folder, complaints):
    import ddcl

    page = explorer()
    notice = page.locator("#notice")
    page.context.set_offline(True)
    page.get_by_text("a row by chance").click()
    expect(notice).to_contain_text("does not answer any more")
    page.click("#page-on")
    page.wait_for_timeout(50)
    page.context.set_offline(False)
    complaints.clear()  # the browser says so too
    page.get_by_text("a row by chance").click()
    page.wait_for_selector("#mixture")
    page.locator("#list .edit").first.click()
    page.keyboard.type("kept")
    with page.expect_response("**/name"):
        page.keyboard.press("Enter")
    expect(page.locator("#list .name").first).to_have_text("kept")
    expect(notice).to_contain_text("does not answer any more")  # of the rows
    page.click("#page-on")
    expect(page.locator("#page-number")).to_have_text("26 to 50")
    expect(notice).to_be_hidden()
    ddcl.load(texts_folder).rename(ddcl.load(texts_folder).names.index("kept"), None)


def test_a_server_that_is_gone_is_said(explorer, expect, texts_folder, complaints):
    with served(texts_folder) as where:
        page = explorer(where)
    page.fill("#text", "my card")
    expect(page.locator("#notice")).to_have_text("The server does not answer any more: start `ddcl explore` again.")
    complaints.clear()  # the browser says so too
