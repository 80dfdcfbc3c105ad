"""How cost grows, as a picture for the README."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.contender import UnavailableError
from bench.growth_labels import decode_label, sequences_label, turn_label
from bench.report import cell
from bench.rounds import Results, Spread

SIZE_INCHES = (11.0, 3.6)
COLOURS = ("#1b6ca8", "#c8553d")
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "figure.facecolor": "white",
    "svg.hashsalt": "aio",  # else each run's file differs
}


def draw_growth(result: Mapping[str, Any], path: Path) -> None:
    """Three panels, a colour for each model: a token and the first token by history, tokens a
    second by sequences. Bands show the least and the most of the rounds.

    Raises:
        UnavailableError: matplotlib isn't installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UnavailableError("it needs matplotlib: requirements-bench.txt") from None
    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        _draw_panels(figure.subplots(1, 3), result)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})


def _draw_panels(panels: Sequence[Any], result: Mapping[str, Any]) -> None:
    results: Results = result["results"]
    histories, sequences = result["histories"], result["sequences"]
    by_history, first, by_sequences = panels
    first.set_yscale("log")  # the two ways are tens of times apart
    for name, colour in zip(results, COLOURS, strict=False):
        tokens = [cell(results, name, decode_label(n), "ms_a_step") for n in histories]
        _line(by_history, histories, tokens, name, colour)
        for is_kept, style in ((False, "--"), (True, "-")):
            firsts = [cell(results, name, turn_label(n, is_kept), "ms") for n in histories]
            label = "session kept" if is_kept else "not kept"
            _line(first, histories, firsts, label, colour, style)
        rates = [cell(results, name, sequences_label(n), "tokens_a_second") for n in sequences]
        _line(by_sequences, sequences, rates, name, colour)
    _finish(by_history, "ms a token, one sequence", "tokens of history")
    _finish(first, "ms to the first token", "tokens of history")
    _finish(by_sequences, "tokens a second, all sequences", "sequences side by side")
    for panel in (by_history, by_sequences):
        panel.set_ylim(bottom=0)
    by_sequences.set_xticks(sequences)


def _line(
    panel: Any,
    places: Sequence[int],
    spreads: Sequence[Spread | None],
    label: str,
    colour: str,
    style: str = "-",
) -> None:
    """What was measured, in its order; places without a figure are left out."""
    there = [(x, s) for x, s in zip(places, spreads, strict=True) if s is not None]
    xs = [x for x, _ in there]
    panel.plot(
        xs, [s["median"] for _, s in there], style, color=colour, label=label, marker="o", ms=4
    )
    lowest, highest = [s["min"] for _, s in there], [s["max"] for _, s in there]
    panel.fill_between(xs, lowest, highest, color=colour, alpha=0.15, linewidth=0)


def _finish(panel: Any, title: str, under: str) -> None:
    panel.set_title(title, fontsize=10, loc="left")
    panel.set_xlabel(under)
    panel.set_xlim(left=0)
    panel.legend(frameon=False, fontsize=8, loc="best")
