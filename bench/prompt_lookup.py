"""Speculation without a draft model, simulated on replies that were recorded.

The draft is what followed the last earlier place where the newest tokens stood, in prompt and
reply (Saxena, 2023, prompt lookup decoding). It is verified as further rows of the same step.

A greedy reply is the same with any draft, so counting how far the draft equals the recorded
tokens is exact. With sampling, rejection keeps the distribution if a token drafted for certain is
accepted with the probability that the model gives it (Leviathan et al., 2023, the draft's
probability being one). That is also the chance that the recorded token is the drafted one: so
the expected counts are the same.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from bench.draft_policies import Policy
from services.engine.drafting import Lookup


@dataclass(slots=True)
class Counts:
    """What replies took: tokens behind their first ones, which come out of the prefill, and how
    many steps had 1, 2, … rows."""

    tokens: int = 0
    steps: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        self.tokens += other.tokens
        self.steps += other.steps


def simulate(
    prompt_ids: Sequence[int], reply_ids: Sequence[int], max_tokens: int, policy: Policy
) -> Counts:
    """The steps of a reply under a policy. `max_tokens` were allowed, and its end's token counts:
    nothing is drafted over them, but it is over an end that nobody knew of."""
    counts, pace = Counts(), policy.begin()
    lookup = Lookup(policy.match, [*prompt_ids, *reply_ids[:1]])
    rest = list(reply_ids[1:])
    room = max_tokens - 1
    while rest:
        matched = lookup.matched()
        wanted = min(pace.most(matched), room - 1) if matched else 0
        draft = lookup.draft(wanted)
        pairs = takewhile(lambda pair: pair[0] == pair[1], zip(draft, rest, strict=False))
        accepted = sum(1 for _ in pairs)
        if policy.is_bound:
            draft = draft[:accepted]
        if draft:
            pace.verified(len(draft), accepted)
        came, rest = rest[: accepted + 1], rest[accepted + 1 :]
        counts.add(Counts(len(came), Counter([1 + len(draft)])))
        room -= len(came)
        for token_id in came:
            if length := lookup.matched():
                pace.saw(length, lookup.draft(1) == [token_id])
            else:
                pace.saw(0, False)
            lookup.append(token_id)
    return counts
