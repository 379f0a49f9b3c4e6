"""What docs/reproduce shows is what the committed records say."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "reproduce").glob("*.md"))
SPEC = spec_from_file_location("fill_reproductions", ROOT / "docs" / "fill_reproductions.py")
filling = module_from_spec(SPEC)
SPEC.loader.exec_module(filling)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_and_sentences_on_a_page_are_those_of_its_record(page):
    text = page.read_text(encoding="utf-8")
    assert filling.filled(text) == text, "run `python docs/fill_reproductions.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_marks_every_part_it_takes_from_a_record(page):
    text = page.read_text(encoding="utf-8")
    opened = text.count("<!-- table:") + text.count("<!-- notes:")
    assert opened == text.count("<!-- end -->") == len(list(filling.MARKED.finditer(text)))


def test_a_page_that_differs_from_its_record_is_noticed():
    text = "before\n<!-- table: debris -->\n\n| made up |\n\n<!-- end -->\nafter"
    found = filling.filled(text)
    assert "made up" not in found
    assert "| synthetic |" in found
    assert found.startswith("before\n")
    assert found.endswith("\nafter")
