"""Commands that look before anything runs: preview, doctor, version."""

from __future__ import annotations

from typing import Annotated

import typer

from dragonet.cli.output import JsonFlag, Overrides, RunsDir, emit_json


def preview(
    config: Annotated[str, typer.Argument(help="A YAML or TOML file.")],
    overrides: Overrides = None,
    n: Annotated[int, typer.Option("-n", help="How many prompts.")] = 3,
    as_json: JsonFlag = False,
) -> None:
    """Show prompts exactly as the model will see them, special tokens and all.

    Example: dragonet preview examples/arithmetic.yaml -n 1
    """
    from dragonet.assemble import prepare
    from dragonet.assemble.preview import preview_json, preview_text
    from dragonet.config import load_config

    prepared = prepare(load_config(config, overrides or []), on_notice=lambda text: typer.echo(text, err=True))
    if as_json:
        emit_json(preview_json(prepared, n))
    else:
        typer.echo(preview_text(prepared, n))


def doctor(runs_dir: RunsDir = None, as_json: JsonFlag = False) -> None:
    """Say what this machine has, what dragonet will use, and what is missing.

    Example: dragonet doctor
    """
    from dragonet.assemble.doctor import examine

    findings = examine(runs_dir)
    if as_json:
        emit_json({f.name: {"ok": f.ok, "value": f.value, "next": f.next} for f in findings})
    else:
        for f in findings:
            typer.echo(f"{'ok ' if f.ok else 'BAD'}  {f.name}: {f.value}" + (f"; {f.next}" if f.next else ""))
    if not all(f.ok for f in findings):
        raise typer.Exit(1)


def version(as_json: JsonFlag = False) -> None:
    """Print the version.

    Example: dragonet version
    """
    from dragonet import __version__

    emit_json({"version": __version__}) if as_json else typer.echo(__version__)
