"""The command `bench`: which sections, how often, where to."""

import importlib
import time
import traceback
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import cast

import click

from bench.contender import Plan, Section, UnavailableError
from bench.report import Chapter, Report
from services.settings import SettingsError, load_settings
from services.weights import WeightsError, find_model

# In the order of the report. Each is imported as its turn comes: what one lacks stops no other.
SECTIONS = (
    "tables",
    "peers",
    "over_http",
    "long_history",
    "shape",
    "growth",
    "steps",
    "quality",
    "speculation",
)
ROUNDS = 3
WORK_FOLDER = ".bench"  # in the models' folder: it holds models too


@click.command("bench")
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice(SECTIONS),
    help="Measure this section alone; repeat it for more.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    help=f"How often everything is measured: {ROUNDS}, or once with --quick.",
)
@click.option("--quick", "is_quick", is_flag=True, help="To see that it runs: nothing to quote.")
@click.option(
    "--data",
    "data_dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Labelled texts and dialogues for the sections quality and speculation.",
)
@click.option(
    "--out",
    "out_dir",
    default=Path("bench/results"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
)
@click.option("--name", help="Of the report's files. The date, if it isn't given.")
def bench_command(
    names: tuple[str, ...],
    rounds: int | None,
    is_quick: bool,
    data_dir: Path | None,
    out_dir: Path,
    name: str | None,
) -> None:
    """Measure this service beside its peers, and write a report.

    Stop whatever else works on this machine first.
    """
    from bench.machine import describe  # it imports torch, which no other command waits for

    try:
        settings = load_settings()
        model = find_model(settings)
    except (SettingsError, WeightsError) as error:
        raise click.ClickException(str(error)) from None
    work_dir = settings.model_dir / WORK_FOLDER
    work_dir.mkdir(parents=True, exist_ok=True)
    rounds = rounds or (1 if is_quick else ROUNDS)
    click.echo("looking at the machine")
    report = Report(
        name or f"{date.today()}{'-quick' if is_quick else ''}",
        rounds,
        is_quick,
        describe(settings, work_dir),
        model.name,
    )

    def skip(what: str, why: str) -> None:
        click.echo(f"  left out: {what}: {why}")
        report.skip(what, why)

    plan = Plan(settings, rounds, work_dir, data_dir, is_quick, _say, skip)
    run_sections(
        [wanted for wanted in SECTIONS if not names or wanted in names], plan, report, out_dir
    )


def run_sections(names: Sequence[str], plan: Plan, report: Report, out_dir: Path) -> None:
    """Measure them one after the other; the report is written anew after each, so that what was
    measured is kept whatever happens to the next."""
    sections: dict[str, Section] = {}
    for name in names:
        try:
            section = cast(Section, importlib.import_module(f"bench.{name}"))
            report.chapters[name] = _measured(section, plan)
            sections[name] = section
        except Exception as error:  # hours of measuring aren't lost to one section's bug
            traceback.print_exc()
            plan.skip(f"section {name}", f"{type(error).__name__}: {error}")
        else:
            _draw(section, report.chapters[name], out_dir / f"{report.name}-{name}.svg", plan)
        paths = report.write(out_dir, {key: one.tables for key, one in sections.items()})
        click.echo(f"written: {', '.join(map(str, paths))}")


def _measured(section: Section, plan: Plan) -> Chapter:
    click.echo(section.TITLE)
    begun = time.perf_counter()
    result = section.measure(plan)
    seconds = time.perf_counter() - begun
    click.echo(section.tables(result))
    return {"title": section.TITLE, "seconds": seconds, "result": result}


def _draw(section: Section, chapter: Chapter, path: Path, plan: Plan) -> None:
    """Where a section has a picture."""
    draw = getattr(section, "draw", None)
    if draw is None:
        return
    try:
        draw(chapter["result"], path)
    except UnavailableError as error:
        plan.skip(path.name, str(error))
    else:
        click.echo(f"drawn: {path}")


def _say(line: str) -> None:
    click.echo(f"  {line}")
