"""What was measured, as a JSON file and as Markdown beside it."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from bench.rounds import Results, Spread, ratio

MISSING = "–"
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\":]+/)+")  # of an absolute path


class Skipped(TypedDict):
    """Something that was left out."""

    what: str
    why: str


class Chapter(TypedDict):
    """A section's outcome."""

    title: str
    seconds: float  # that measuring took
    result: dict[str, Any]


@dataclass(slots=True)
class Report:
    """All of one run."""

    name: str
    rounds: int
    is_quick: bool
    machine: Mapping[str, str]
    model: str
    chapters: dict[str, Chapter] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, what: str, why: str) -> None:
        """Note what was left out. Folders are cut from `why`: they are nobody else's business."""
        self.skipped.append({"what": what, "why": _FOLDERS.sub("", why)})

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "rounds": self.rounds,
            "quick": self.is_quick,
            "machine": dict(self.machine),
            "model": self.model,
            "sections": self.chapters,
            "skipped": self.skipped,
        }

    def to_markdown(self, tables: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> str:
        """The chapters in their order, each as its section's `tables` gives it."""
        quick = ", quick: to see that it runs, not to quote" if self.is_quick else ""
        parts = [
            f"# Benchmark {self.name}",
            f"{self.model}. Interleaved rounds: {self.rounds}{quick}. Medians, least and most in "
            "brackets. Where others use the machine too, ratios tell more than times.",
            markdown_table(("machine", ""), list(self.machine.items())),
        ]
        for name, chapter in self.chapters.items():
            minutes = f"Measured in {chapter['seconds'] / 60:.1f} minutes."
            body = tables[name](chapter["result"]).strip()
            parts += [f"## {chapter['title']}", body, minutes]
        if self.skipped:
            rows = [(skipped["what"], _in_a_cell(skipped["why"])) for skipped in self.skipped]
            parts += ["## Left out", markdown_table(("what", "why"), rows)]
        return "\n\n".join(parts) + "\n"

    def write(
        self, folder: Path, tables: Mapping[str, Callable[[Mapping[str, Any]], str]]
    ) -> tuple[Path, Path]:
        """Write `NAME.json` and `NAME.md`; an earlier one of this name is replaced."""
        folder.mkdir(parents=True, exist_ok=True)
        data, text = folder / f"{self.name}.json", folder / f"{self.name}.md"
        data.write_text(
            json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        text.write_text(self.to_markdown(tables), encoding="utf-8")
        return data, text


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table: the first column to the left, the others to the right."""
    rules = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rules, *rows))


def cell(results: Results, contender: str, label: str, figure: str) -> Spread | None:
    """The figure, where it was measured."""
    return results.get(contender, {}).get(label, {}).get(figure)


def shown(value: Spread | None) -> str:
    """`21.3 (20.9–22.0)`: the median, then least and most."""
    if value is None:
        return MISSING
    median, least, most = (rounded(value[name]) for name in ("median", "min", "max"))
    return median if least == most else f"{median} ({least}–{most})"


def shown_ratio(over: Spread | None, under: Spread | None) -> str:
    """`over` in units of `under`; see `bench.rounds.ratio`."""
    return MISSING if over is None or under is None else f"{ratio(over, under):.2f}"


def rounded(value: float) -> str:
    """Three digits that tell, without an exponent: 1234, 123, 12.3, 1.23, 0.123."""
    magnitude = abs(float(f"{value:.2e}"))  # 0.9996 is 1.00, as 99.96 is 100
    digits = 2 - math.floor(math.log10(magnitude)) if magnitude else 0
    return f"{value:.{max(digits, 0)}f}"


def _in_a_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
