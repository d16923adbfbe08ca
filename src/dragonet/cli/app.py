"""The command table: which function answers which command. It knows no command's work."""

from __future__ import annotations

import typer

from dragonet.cli import inspect, models, runs, train

app = typer.Typer(
    name="dragonet",
    help="Train small language models from rewards that can be checked.",
    epilog="Start here: dragonet demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(train.demo)
app.command()(train.reinforce)
app.command()(inspect.preview)
app.command()(train.evaluate)
app.command(name="runs")(runs.list_all)
app.command()(runs.status)
app.command()(runs.watch)
app.command()(runs.logs)
app.command()(runs.wait)
app.command()(runs.cancel)
app.command()(train.resume)
app.command()(inspect.doctor)
app.command()(inspect.version)
app.add_typer(models.app, name="models")
