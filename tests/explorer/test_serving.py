"""The server listens to this machine alone, and what cannot be served is one sentence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from ddcl.cli import main
from ddcl.explorer import address_of, listen, serving
from ddcl.fitting import BadInputError


def test_it_listens_on_the_loopback_alone():
    with listen() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert address_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}/"


def test_the_next_port_is_taken_when_one_is_busy(monkeypatch):
    with listen() as first:
        monkeypatch.setattr(serving, "USUAL_PORT", first.getsockname()[1])
        with listen() as second:
            assert second.getsockname()[1] > first.getsockname()[1]


def test_a_port_that_is_taken_is_named(texts_folder, capsys):
    with listen() as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"--port: {port} cannot be had"):
            listen(port)
        assert main(["explore", str(texts_folder), "--port", str(port)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"ddcl explore: --port: {port} cannot be had (")


@pytest.mark.parametrize("port", ["0", "70000", "http"])
def test_a_port_that_is_none_is_refused(texts_folder, port, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["explore", str(texts_folder), "--port", port])
    assert stopped.value.code == 2
    assert f"got '{port}', expected a number from 1 to 65535" in capsys.readouterr().err


def test_what_is_no_finished_run_is_named(tmp_path, own_folder, capsys):
    assert main(["explore", str(tmp_path / "nowhere")]) == 2
    assert "is no run folder" in capsys.readouterr().err
    config = json.loads((own_folder / "config.json").read_text())
    (own_folder / "config.json").write_text(json.dumps(config | {"state": "interrupted"}))
    assert main(["explore", str(own_folder)]) == 2
    said = capsys.readouterr().err
    assert "is not finished (interrupted" in said
    assert said.count("\n") == 1


def test_a_device_that_is_not_there_is_named(texts_folder, capsys):
    assert main(["explore", str(texts_folder), "--device", "cuda:99"]) == 2
    assert capsys.readouterr().err == "ddcl explore: --device: 'cuda:99' is not on this machine\n"


@pytest.mark.skipif(os.name != "posix", reason="sends the signal of Ctrl-C")
def test_it_serves_until_it_is_stopped_and_stops_quietly(texts_folder):
    command = [sys.executable, "-W", "ignore", "-m", "ddcl", "explore", str(texts_folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{address}api/run") as response:
            assert json.load(response)["name"] == "messages"
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=20)
    finally:
        server.kill()
    assert server.returncode == 0
    assert said == f"reading {texts_folder} ...\n"
