"""Text sets from the user's folder, from their public homes, and what is said when there is neither."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from ddcl.data import SETS, MissingDataError, available, load_texts
from ddcl.data.folder import SHIPPED

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow (the extra ddcl[text])")


def write_set(folder, texts, labels, names, split="train"):
    import pyarrow

    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({"text": texts, "label": labels, "name": names}), folder / f"{split}.parquet")


class Rows(dict):
    """What the hub's package returns, as far as it is used: columns, and the features they have."""

    def __init__(self, columns, classes=None):
        super().__init__(columns)
        named = SimpleNamespace(names=classes) if classes else SimpleNamespace()
        self.features = {column: named if column == "label" else SimpleNamespace() for column in columns}


def fake_hub(monkeypatch, answers):
    """A package ``datasets`` that knows these (address, split) alone; returns the list of what it was asked."""
    asked = []

    def load_dataset(address, split):
        asked.append((address, split))
        if (address, split) not in answers:
            raise RuntimeError(f"Dataset scripts are no longer supported, but found {address}.py\nand more")
        return answers[address, split]

    module = ModuleType("datasets")
    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    monkeypatch.delenv("DDCL_DATA", raising=False)
    return asked


def test_a_set_comes_back_as_it_was_written(tmp_path, monkeypatch):
    write_set(tmp_path / "tiny", ["b one", "a", "b two"], [1, 0, 1], ["second", "first", "second"])
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    found = load_texts("tiny")
    assert found.texts == ["b one", "a", "b two"]
    assert found.labels == [1, 0, 1]
    assert found.names == ["first", "second"]


def test_a_split_without_one_of_the_classes_keeps_the_numbers_of_the_others(tmp_path, monkeypatch):
    write_set(tmp_path / "tiny", ["a", "c"], [0, 2], ["first", "third"])
    write_set(tmp_path / "sst2", ["good"], [1], ["positive"], split="test")
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    assert load_texts("tiny").names == ["first", "1", "third"]
    assert load_texts("sst2", "test").names == ["negative", "positive"]


def test_the_folder_comes_first_and_then_nothing_is_fetched(tmp_path, monkeypatch):
    asked = fake_hub(monkeypatch, {})
    write_set(tmp_path / "sst2", ["good"], [1], ["positive"])
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    assert load_texts("sst2").texts == ["good"]
    assert asked == []


def test_sst2_from_the_hub_takes_the_development_set_for_a_test_set(monkeypatch):
    rows = Rows({"sentence": ["bad film ", "good film "], "label": [0, 1]}, classes=["negative", "positive"])
    asked = fake_hub(monkeypatch, {("stanfordnlp/sst2", "validation"): rows})
    assert load_texts("sst2", "test") == (["bad film", "good film"], [0, 1], ["negative", "positive"])
    assert asked == [("stanfordnlp/sst2", "validation")]


def test_imdb_from_the_hub_has_the_long_names_of_its_classes(monkeypatch):
    rows = Rows({"text": ["good ", "bad"], "label": [1, 0]}, classes=["neg", "pos"])
    fake_hub(monkeypatch, {("stanfordnlp/imdb", "train"): rows})
    assert load_texts("imdb") == (["good ", "bad"], [1, 0], ["negative", "positive"])


def test_banking77_comes_with_the_package_unless_the_folder_has_another(tmp_path, monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = load_texts("banking77", "test")
    assert (len(found.texts), found.names[found.labels[0]]) == (3080, "card_arrival")
    assert ("banking77", "ddcl", ("train", "test")) in available()
    assert "CC BY 4.0" in (SHIPPED / "banking77" / "ATTRIBUTION.md").read_text(encoding="utf-8")
    write_set(tmp_path / "banking77", ["where is it"], [2], ["age_limit"])
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    assert load_texts("banking77").texts == ["where is it"]
    assert ("banking77", str(tmp_path), ("train", "test")) in available()


def test_twenty_newsgroups_from_scikit_learn_are_whole_messages_in_the_order_of_their_files(monkeypatch):
    datasets = pytest.importorskip("sklearn.datasets")
    asked = {}

    def fetch_20newsgroups(**options):
        asked.update(options)
        return SimpleNamespace(
            data=["From: c", "From: b", "From: a"],
            target=[1, 0, 0],
            target_names=["alt.atheism", "sci.space"],  # a subset: its numbers are not the set's
            filenames=["x/sci.space/1", "x/alt.atheism/51", "x/alt.atheism/49"],
        )

    monkeypatch.setattr(datasets, "fetch_20newsgroups", fetch_20newsgroups)
    monkeypatch.delenv("DDCL_DATA", raising=False)
    found = load_texts("20newsgroups", "test")
    assert found.texts == ["From: a", "From: b", "From: c"]
    assert found.labels == [0, 0, 14]
    assert len(found.names) == 20
    assert asked == {"subset": "test", "remove": (), "shuffle": False, "download_if_missing": False}
    monkeypatch.delenv("HF_HUB_OFFLINE")
    load_texts("20newsgroups")
    assert asked["download_if_missing"]


def test_a_home_with_other_classes_is_refused(monkeypatch):
    rows = Rows({"text": ["hm"], "label": [0]}, classes=["neutral"])
    fake_hub(monkeypatch, {("stanfordnlp/imdb", "train"): rows})
    with pytest.raises(MissingDataError, match="'neutral' is none of the classes of imdb"):
        load_texts("imdb")


def test_without_folder_and_package_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(MissingDataError) as caught:
        load_texts("sst2")
    said = str(caught.value)
    for part in ("train split of sst2", "DDCL_DATA", "sst2/train.parquet", "text, label, name"):
        assert part in said
    assert "`pip install datasets`" in said
    assert "\n" not in said


def test_what_the_hub_answers_is_passed_on_in_one_line(tmp_path, monkeypatch):
    fake_hub(monkeypatch, {})
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"is not in .*Dataset scripts are no longer supported") as caught:
        load_texts("imdb")
    assert "\n" not in str(caught.value)


def test_a_set_of_ones_own_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("DDCL_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"set DDCL_DATA to a folder that holds tiny/train\.parquet"):
        load_texts("tiny")
    monkeypatch.setenv("DDCL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"test split of tiny is not in .*: set DDCL_DATA"):
        load_texts("tiny", "test")


def test_a_wrong_split_and_a_wrong_kind_are_refused():
    with pytest.raises(ValueError, match="sst2 has no split 'dev'; it has train, test"):
        load_texts("sst2", "dev")
    with pytest.raises(ValueError, match="mnist is a set of images, not of texts"):
        load_texts("mnist")


@pytest.mark.parametrize("name", [name for name, known in SETS.items() if known.kind == "texts"])
def test_what_the_catalogue_says_of_a_text_set_is_so(name):
    if not any(one.name == name and one.splits == SETS[name].splits for one in available()):
        pytest.skip("needs the set in a data folder (DDCL_DATA)")
    for split, rows in SETS[name].rows.items():
        found = load_texts(name, split)
        assert len(found.texts) == len(found.labels) == rows
        assert found.names == list(SETS[name].classes)
        assert set(found.labels) == set(range(len(found.names)))
