"""The commands of the lab, where it is and where it is not."""

import subprocess
import sys

import typer

from locore.cli import lab, main


def test_without_the_lab_its_commands_say_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(lab, "entry_points", lambda group: [])
    app = typer.Typer()
    app.command()(lambda: None)
    lab.add_commands(app)
    monkeypatch.setattr("locore.cli.app", app)
    for name in lab.COMMANDS:
        for arguments in ([], ["fidelity", "--quick", "-o", "here"], ["--help"]):
            assert main([name, *arguments]) == 2
            assert "pip install ./lab" in capsys.readouterr().err


def test_with_it_they_are_its_own(capsys):
    assert main(["bench", "--help"]) == 0
    assert "fidelity" in capsys.readouterr().out


def test_what_users_call_does_not_import_the_lab_itself():
    """Only what its commands look like is read beforehand, not torch or pictures."""
    code = "import locore.cli, sys; print(*(name for name in ('torch', 'matplotlib') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
