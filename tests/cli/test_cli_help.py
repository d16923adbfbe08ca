"""Commands that need no run: help, version, doctor, models; and how usage errors end."""

from __future__ import annotations

from pathlib import Path

import pytest

import dragonet
from assemble.forking import Server
from dragonet.cli.app import app

COMMANDS = [(command.name or command.callback.__name__,) for command in app.registered_commands if command.callback]
COMMANDS += [("models", "list"), ("models", "pull")]


def test_every_command_of_the_first_release_is_there() -> None:
    training, reading = (
        ("demo", "reinforce", "resume"),
        ("preview", "evaluate", "runs", "status", "watch", "logs", "wait"),
    )
    wanted = (*training, *reading, "cancel", "doctor", "version")
    assert {name[0] for name in COMMANDS} == {*wanted, "models"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_has_an_example_and_offers_json(command: tuple[str, ...], forks: Server) -> None:
    done = forks.run(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Example: dragonet {' '.join(command)}" in done.out
    assert "--json" in done.out


def test_the_version_is_that_of_the_package(forks: Server) -> None:
    assert forks.run("version").out.strip() == dragonet.__version__
    assert forks.run("version", "--json").json == {"version": dragonet.__version__}


def test_doctor_says_what_the_machine_has(forks: Server, runs_dir: Path) -> None:
    done = forks.run("doctor", "--json")
    said = done.json
    assert {"python", "packages", "device", "memory", "runs folder", "model smollm2-135m-instruct"} <= set(said)
    assert all(set(finding) == {"ok", "value", "next"} for finding in said.values())
    assert done.code == (0 if all(finding["ok"] for finding in said.values()) else 1)
    assert str(runs_dir) in said["runs folder"]["value"]
    assert "torch" in said["packages"]["value"]
    assert forks.run("doctor").out.count("\n") == len(said)


def test_doctor_tells_a_place_that_cannot_be_written(forks: Server) -> None:
    done = forks.run("doctor", "--runs-dir", "/proc/nowhere", "--json")
    assert done.code == 1
    assert not done.json["runs folder"]["ok"]
    assert "--runs-dir" in done.json["runs folder"]["next"]


def test_models_list_says_what_is_there(forks: Server) -> None:
    said = forks.run("models", "list", "--json").json
    assert "smollm2-135m-instruct" in [row["name"] for row in said]
    assert "smollm2-135m-instruct" in forks.run("models", "list").out


def test_pulling_an_unknown_model_names_the_near_one(forks: Server) -> None:
    done = forks.run("models", "pull", "smollm2-135m-instuct")
    assert done.code == 2
    assert "smollm2-135m-instruct" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("reinforc",), "No such command 'reinforc'"),
        (("reinforce",), "Missing argument"),
        (("reinforce", "a.yaml", "--frobnicate"), "--frobnicate"),
        (("logs", "last", "-n", "many"), "Invalid value for '-n'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_ends_with_two_and_no_traceback(argv: tuple[str, ...], said: str, forks: Server) -> None:
    done = forks.run(*argv)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
