"""The command line: help worth reading, versions, errors that say what is known."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import ddcl
from ddcl.cli import COMMANDS, main


def test_alone_it_prints_the_commands_and_what_they_are_for(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in shown
        assert command.purpose in shown


def test_the_version_is_the_library_s(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"ddcl {ddcl.__version__}"


def test_an_unknown_command_names_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["no-such-command"])
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert "no-such-command" in complaint
    assert all(name in complaint for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_and_its_options(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: ddcl {name}" in shown
    assert len(shown.split()) > 40  # more than a list of options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_module_with_the_two_functions(name):
    module = import_module(COMMANDS[name].module)
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_a_command_is_imported_only_when_it_is_asked_for():
    modules = [command.module for command in COMMANDS.values()]
    code = f"import sys, ddcl.cli; print([name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "ddcl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ddcl ")


def test_a_reader_that_stops_early_is_no_error_message():
    code = "import sys; from ddcl.cli import main; sys.exit(main(['claims', '--list']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
