"""Our engine's own replies to dialogues, with speculation simulated on them: a contender for
`bench.speculation`. Tokens stay in this process; counts alone leave it."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.contender import Figures, UnavailableError
from bench.draft_policies import POLICIES
from bench.engine_load import CHAT
from bench.prompt_lookup import Counts, simulate
from bench.timed_engine import GREEDY, TimedEngine, wait
from services.dialogue import NextTurn
from services.engine.tasks import Sampling
from services.prompts import load_prompts
from services.ready import Ready, make_ready
from services.sessions import Turn
from services.settings import Settings
from services.weights import WeightsError

TOKENS, STEPS = "tokens", "steps"


def make(settings: Settings, work_dir: Path) -> "RecordedReplies":
    """The engine in the precision that the settings name.

    Raises:
        UnavailableError: the model isn't there.
    """
    try:
        return RecordedReplies(make_ready(settings, load_prompts(settings.prompts_dir)))
    except WeightsError as error:
        raise UnavailableError(str(error)) from None


@dataclass(slots=True)
class _Dialogue:
    """A dialogue on its way to the last turn's reply."""

    texts: Sequence[str]
    replies: Sequence[str]  # recorded with it, where it has any
    history: tuple[Turn, ...] = ()
    prompt_ids: Sequence[int] = ()  # of the turn answered last
    reply_ids: Sequence[int] = ()  # to it, with the token that ends it if it ended


class RecordedReplies:
    """Answers dialogues as the service would."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._engine = TimedEngine(ready.engine)

    def simulate(self, path: str, items: int, new_tokens: int, is_sampled: bool) -> Figures:
        """Answer the last turns of a file's first dialogues, greedy or as the chat's prompt file
        samples, and count for each policy: `tokens POLICY`, and `steps POLICY ROWS`, the steps
        with so many rows. Behind each last turn stands what the file has as replies to the turns
        before, or what the engine said itself."""
        with Path(path).open(encoding="utf-8") as file:
            lines = [json.loads(line) for line in itertools.islice(file, items)]
        dialogues = [_Dialogue(line["turns"], line.get("ref_replies", ())) for line in lines]
        for number in range(max(len(dialogue.texts) for dialogue in dialogues)):
            self._take_turn(number, dialogues, new_tokens, is_sampled)
        figures: Figures = {}
        for name, policy in POLICIES.items():
            counts = Counts()
            for dialogue in dialogues:
                counts.add(simulate(dialogue.prompt_ids, dialogue.reply_ids, new_tokens, policy))
            figures[f"{TOKENS} {name}"] = counts.tokens
            figures |= {f"{STEPS} {name} {rows}": n for rows, n in sorted(counts.steps.items())}
        return figures

    def _take_turn(
        self, number: int, dialogues: Sequence[_Dialogue], new_tokens: int, is_sampled: bool
    ) -> None:
        """This turn of all dialogues that have it; side by side, which changes no reply."""
        encode = self._ready.encoder.encode_text
        asked = []
        for seed, dialogue in enumerate(dialogues):
            if number >= len(dialogue.texts):
                continue
            text = dialogue.texts[number]
            turn = self._ready.dialogues[CHAT].next_turn(dialogue.history, encode(text))
            if number < min(len(dialogue.replies), len(dialogue.texts) - 1):
                ids = encode(dialogue.replies[number])
                dialogue.history = turn.finished(text, "", None, ids)
            else:
                sampling = self._sampling(seed) if is_sampled else GREEDY
                handle = self._engine.submit(turn.prompt_ids, new_tokens, sampling=sampling)
                asked.append((dialogue, turn, handle))
        for dialogue, turn, handle in asked:
            self._note(dialogue, turn, wait(handle).token_ids)

    def _note(self, dialogue: _Dialogue, turn: NextTurn, token_ids: Sequence[int]) -> None:
        end_ids = self._ready.encoder.end_ids
        said = list(itertools.takewhile(lambda token_id: token_id not in end_ids, token_ids))
        dialogue.prompt_ids = turn.prompt_ids
        dialogue.reply_ids = token_ids[: len(said) + 1]
        dialogue.history = turn.finished("", "", None, said)

    def _sampling(self, seed: int) -> Sampling:
        defaults: dict[str, Any] = asdict(self._ready.prompts[CHAT].sampling)
        return Sampling(**defaults, seed=seed)
