"""Ways to do the service's work: the source articles', ours with nothing kept, ours with all.

Each takes the same jobs, so that the ladder from one to the next is measured interleaved.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.contender import Figures
from bench.rounds import Runs

LABEL_NEW_TOKENS = 2  # the articles let the model generate its label


@dataclass(frozen=True, slots=True)
class OursKeeping:
    """Our engine, with what it keeps (prefixes and sessions) used or not."""

    engine: Runs
    is_kept: bool

    def run(self, job: str, **params: Any) -> Figures:
        if job in ("label", "turn", "requests"):
            params["is_kept"] = self.is_kept
        return self.engine.run(job, **params)


@dataclass(frozen=True, slots=True)
class ArticlesWay:
    """`generate` with the whole prompt each time; of several requests one after the other.

    It gets prompts as long as ours, so that the ladder shows the engine and not the prompt.
    """

    transformers: Runs
    label_tokens: int  # of the label's prompt without its text
    chat_tokens: int  # of a first turn's, likewise

    def run(self, job: str, **params: Any) -> Figures:
        if job == "label":
            return {"ms": self._label_ms(params["text_tokens"])}
        if job == "turn":
            prompt = self.chat_tokens + params["history_tokens"] + params["text_tokens"]
            return {"ms": self._reply_ms(prompt, 1)}
        if job == "requests":
            return self._requests(params)
        return self.transformers.run(job, **params)

    def _requests(self, params: dict[str, Any]) -> Figures:
        text, batch, new = params["text_tokens"], params["batch"], params["new_tokens"]
        prompt = self.chat_tokens + params["history_tokens"] + text
        took = sum(self._label_ms(text) + self._reply_ms(prompt, new) for _ in range(batch))
        return {"requests_a_minute": 60_000 * batch / took, "ms_a_token": took / (batch * new)}

    def _label_ms(self, text_tokens: int) -> float:
        return self._reply_ms(self.label_tokens + text_tokens, LABEL_NEW_TOKENS)

    def _reply_ms(self, prompt_tokens: int, new_tokens: int) -> float:
        asked = {"prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
        return self.transformers.run("reply", **asked)["ms"]


def make_ways(
    ours: Runs,
    articles: Mapping[str, Runs | None],
    not_keeping: Mapping[str, Runs | None],
    keeping: Mapping[str, Runs | None],
) -> dict[str, Runs]:
    """Those that can run, in this order; a way without its contender is left out. `ours` tells how
    long the prompts are."""
    lengths = ours.run("lengths")
    label, chat = int(lengths["label"]), int(lengths["chat"])
    ways: dict[str, Runs] = {}
    ways |= {name: ArticlesWay(runs, label, chat) for name, runs in articles.items() if runs}
    ways |= {name: OursKeeping(runs, is_kept=False) for name, runs in not_keeping.items() if runs}
    return ways | {name: OursKeeping(runs, is_kept=True) for name, runs in keeping.items() if runs}
