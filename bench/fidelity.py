"""int8 held against fp32 in one process: the contender of `bench.quality`."""

import itertools
import json
import statistics
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.contender import Figures
from bench.engine_load import CHAT
from bench.loaded import Loaded, load
from bench.prompts import MESSAGES
from bench.timed_engine import TimedEngine, wait
from services.sessions import Turn
from services.settings import Settings

REFERENCE = ("fp32", "fp32")  # precision of the weights, and of the K/V
CANDIDATES = {"kv_fp32": ("int8", "fp32"), "kv_bf16": ("int8", "bf16")}
_COMPARED = ("nll", "kl", "same_choice")
_ROWS_AT_ONCE = 16  # of the vocabulary's length: they stay in the processor's cache


def make(settings: Settings, work_dir: Path) -> "Fidelity":
    """All of them loaded.

    Raises:
        UnavailableError: the model isn't there.
    """
    candidates = {name: load(settings, *how) for name, how in CANDIDATES.items()}
    return Fidelity(load(settings, *REFERENCE), candidates)


class Fidelity:
    """Figures of each candidate end in its name, such as `same_label_kv_bf16`."""

    def __init__(self, reference: Loaded, candidates: dict[str, Loaded]) -> None:
        self._reference = reference
        self._candidates = candidates
        self._encoder = reference.ready.encoder

    def labels(self, path: str, items: int) -> Figures:
        """`same_label_…`: the share of texts that get the reference's label; `count`."""
        same = dict.fromkeys(self._candidates, 0)
        count = 0
        for item in _lines(path, items):
            text_ids = self._encoder.encode_text(item["text"])
            label = self._reference.label(text_ids)
            for name, candidate in self._candidates.items():
                same[name] += candidate.label(text_ids) == label
            count += 1
        return {"count": count, **{f"same_label_{name}": n / count for name, n in same.items()}}

    def dialogues(self, path: str, items: int) -> Figures:
        """Means over all tokens but the first: `nll_…`, by how much the negative log likelihood
        grows; `kl_…`, the divergence from the reference; `same_choice_…`, the share of places
        with the same likeliest token; and `count`."""
        sums = {f"{figure}_{name}": 0.0 for name in self._candidates for figure in _COMPARED}
        count = 0
        for item in _lines(path, items):
            ids = self._laid_out(item["turns"], item["ref_replies"])
            exact = self._reference.logits(ids, len(ids))[:-1]
            for name, candidate in self._candidates.items():
                rough = candidate.logits(ids, len(ids))[:-1]
                for figure, total in compare(exact, rough, ids[1:]).items():
                    sums[f"{figure}_{name}"] += total
            count += len(ids) - 1
        return {"count": count, **{name: total / count for name, total in sums.items()}}

    def cached_replies(self, replies: int, new_tokens: int) -> Figures:
        """Second turns answered behind the first one's K/V, and the same from scratch, greedy:
        `equal_…`, the share of equal replies; `largest_gap_…`, between the logits of the two
        tokens where replies part, 0 if none does; `usual_gap_…`, the median between the two
        likeliest tokens anywhere."""
        figures: Figures = {"count": replies}
        pairs = list(itertools.islice(_message_pairs(), replies))
        for name, candidate in self._candidates.items():
            gaps: list[float] = []
            usual: list[float] = []
            prompts, cached = self._second_turns(candidate, pairs, new_tokens)
            scratch = _replies(candidate, prompts, new_tokens)
            for prompt, mine, other in zip(prompts, cached, scratch, strict=True):
                rows = candidate.logits([*prompt, *other], len(other) + 1)[:-1]
                likeliest = rows.topk(2).values
                usual += (likeliest[:, 0] - likeliest[:, 1]).tolist()
                if (at := parting(mine, other)) is not None:
                    gaps.append(abs(float(rows[at, mine[at]] - rows[at, other[at]])))
            figures[f"equal_{name}"] = 1 - len(gaps) / replies
            figures[f"largest_gap_{name}"] = max(gaps, default=0.0)
            figures[f"usual_gap_{name}"] = statistics.median(usual)
        return figures

    def _laid_out(self, texts: Sequence[str], replies: Sequence[str]) -> list[int]:
        """A dialogue's token ids as the service lays it out, up to its last reply."""
        encode = self._encoder.encode_text
        *earlier, (last_text, last_reply) = zip(texts, replies, strict=False)
        turns = tuple(
            Turn(CHAT, text, reply, None, tuple(encode(text)), tuple(encode(reply)))
            for text, reply in earlier
        )
        turn = self._reference.ready.dialogues[CHAT].next_turn(turns, encode(last_text))
        return [*turn.prompt_ids, *encode(last_reply)]

    def _second_turns(
        self, loaded: Loaded, pairs: Sequence[tuple[str, str]], new_tokens: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The second turns' prompts, and their replies behind the K/V that the first ones left."""
        dialogue, encode = loaded.ready.dialogues[CHAT], self._encoder.encode_text
        keys = [("first turn", number) for number in range(len(pairs))]
        firsts = [dialogue.next_turn((), encode(first)) for first, _ in pairs]
        said = _replies(loaded, [turn.prompt_ids for turn in firsts], new_tokens, keys)
        prompts = [
            dialogue.next_turn(turn.finished(text, "", None, reply), encode(second)).prompt_ids
            for turn, reply, (text, second) in zip(firsts, said, pairs, strict=True)
        ]
        cached = _replies(loaded, prompts, new_tokens, keys)
        TimedEngine(loaded.ready.engine).forget(keys)
        return prompts, cached


def _replies(
    loaded: Loaded,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    keys: Sequence[Hashable] | None = None,
) -> list[list[int]]:
    """Greedy, side by side, which changes no token in int8; under keys where there are any, and
    with speculation, as the service answers."""
    engine = TimedEngine(loaded.ready.engine)
    named = zip(prompts, keys or itertools.repeat(None), strict=False)
    handles = [engine.submit(prompt, new_tokens, key, may_draft=True) for prompt, key in named]
    return [wait(handle).token_ids for handle in handles]


def compare(exact: torch.Tensor, rough: torch.Tensor, following: Sequence[int]) -> Figures:
    """Sums over the rows of two tables of logits `[num_rows, vocab_size]`; `following` are the
    tokens that came. See `Fidelity.dialogues`."""
    places = torch.tensor(following).unsqueeze(1)
    sums = dict.fromkeys(_COMPARED, 0.0)
    for part in zip(*(table.split(_ROWS_AT_ONCE) for table in (exact, rough, places)), strict=True):
        for figure, total in _compare_rows(*part).items():
            sums[figure] += total
    return sums


def _compare_rows(exact: torch.Tensor, rough: torch.Tensor, places: torch.Tensor) -> Figures:
    norms = rough.logsumexp(-1) - exact.logsumexp(-1)
    gained = (exact.gather(1, places) - rough.gather(1, places)).squeeze(1)
    expected = torch.linalg.vecdot(exact.softmax(-1), exact - rough)
    return {
        "nll": float((gained + norms).sum()),
        "kl": float((expected + norms).sum()),
        "same_choice": float((exact.argmax(-1) == rough.argmax(-1)).sum()),
    }


def parting(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Where two replies of one length first differ, if they do."""
    pairs = enumerate(zip(first, second, strict=True))
    return next((at for at, (a, b) in pairs if a != b), None)


def _lines(path: str, items: int) -> Iterator[dict[str, Any]]:
    """The first items of a JSON-lines file."""
    with Path(path).open(encoding="utf-8") as file:
        for line in itertools.islice(file, items):
            yield json.loads(line)


def _message_pairs() -> Iterator[tuple[str, str]]:
    """Two turns of a dialogue, all different."""
    for distance in itertools.count(1):
        for at, first in enumerate(MESSAGES):
            yield first, MESSAGES[(at + distance) % len(MESSAGES)]
