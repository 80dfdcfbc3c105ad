"""The Qwen1.5-0.5B shape with random weights: the figures of the articles' own model, which
can't be fetched everywhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.contender import Plan, UnavailableError
from bench.processes import Wanted, started
from bench.random_checkpoint import QWEN15_05B, write_random_checkpoint
from bench.report import cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, Results, interleave
from bench.ways import make_ways
from services.settings import Settings
from services.weights import find_model

TITLE = "The shape of Qwen1.5-0.5B"

ARTICLES = "transformers, fp32"
NOTHING_KEPT = "ours, int8, nothing kept"
KV_FP32, KV_BF16 = "ours, int8, K/V in fp32", "ours, int8, K/V in bf16"
TEXT_TOKENS = 20
HISTORIES, QUICK_HISTORIES = (0, 100, 600, 1500), (0, 100)
DECODED_BEHIND, QUICK_DECODED_BEHIND = (40, 600, 1500), (40,)
SEQUENCES, QUICK_SEQUENCES = (4, 8), (4,)
NEW_TOKENS, QUICK_NEW_TOKENS = 48, 16
SESSION_TOKENS = 600


def shape_settings(plan: Plan) -> Settings:
    """The plan's settings with the random checkpoint, which is written if it isn't there."""
    plan.say("writing random weights of the Qwen1.5-0.5B shape")
    tokenizer = find_model(plan.settings).folder
    folder = write_random_checkpoint(plan.work_dir / "qwen1.5-0.5b", tokenizer, QWEN15_05B)
    return replace(plan.settings, model=str(folder.resolve()))


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`."""
    settings = shape_settings(plan)
    int8 = {
        name: replace(settings, precision="int8", kv_precision=kv)
        for name, kv in ((KV_FP32, "fp32"), (KV_BF16, "bf16"))
    }
    wanted = {name: Wanted("ours", own) for name, own in int8.items()}
    wanted[ARTICLES] = Wanted("transformers_generate", replace(settings, precision="fp32"))
    with started(wanted, plan) as children:
        if KV_FP32 not in children:
            raise UnavailableError("our own engine could not be started")
        engines = {name: child for name, child in children.items() if name in int8}
        ways = make_ways(
            children[KV_FP32],
            {ARTICLES: children.get(ARTICLES)},
            not_keeping={NOTHING_KEPT: children[KV_FP32]},
            keeping={name: children.get(name) for name in (KV_FP32, KV_BF16)},
        )
        return {
            "ways": interleave(ways, _service_jobs(plan), plan),
            "engine": interleave(engines, _engine_jobs(plan), plan),
        }


def _service_jobs(plan: Plan) -> list[Job]:
    return [
        Job("memory, MiB", "memory"),
        Job("label", "label", {"text_tokens": TEXT_TOKENS}),
        *(
            Job(
                f"turn 3, {length} tokens of history" if length else "turn 1",
                "turn",
                {"history_tokens": length, "text_tokens": TEXT_TOKENS},
            )
            for length in (QUICK_HISTORIES if plan.is_quick else HISTORIES)
        ),
        _decode_job(plan, "decode, ms a token", 1),
    ]


def _engine_jobs(plan: Plan) -> list[Job]:
    behind = QUICK_DECODED_BEHIND if plan.is_quick else DECODED_BEHIND
    sequences = QUICK_SEQUENCES if plan.is_quick else SEQUENCES
    jobs = [
        _decode_job(plan, f"behind {length} tokens", 1, history_tokens=length) for length in behind
    ]
    jobs += [_decode_job(plan, f"{number} sequences", number) for number in sequences]
    return [*jobs, Job("session", "session", {"history_tokens": SESSION_TOKENS})]


def _decode_job(plan: Plan, label: str, sequences: int, **more: int) -> Job:
    new_tokens = QUICK_NEW_TOKENS if plan.is_quick else NEW_TOKENS
    return Job(label, "decode", {"sequences": sequences, "new_tokens": new_tokens, **more})


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    return "\n\n".join(
        [
            "Random weights, written by the bench. In ms but for the memory; a turn's first "
            f"token, {TEXT_TOKENS} tokens of text:",
            _ways_table(result["ways"]),
            "A step of decoding in ms, by history and by sequences, and what a session of "
            f"{SESSION_TOKENS} tokens takes:",
            _engine_table(result["engine"]),
        ]
    )


def _ways_table(ways: Results) -> str:
    names = list(ways)
    rows = []
    for label in _labels(ways):
        figure = "resident_mb" if label.startswith("memory") else "ms"
        figure = "ms_a_step" if label.startswith("decode") else figure
        spreads = [cell(ways, name, label, figure) for name in names]
        kept = spreads[names.index(KV_FP32)]
        ratios = [shown_ratio(kept, spread) for spread in (spreads[0], spreads[1])]
        rows.append([label, *map(shown, spreads), *ratios])
    return markdown_table(
        ["", *names, "kept (fp32) over the first column", "over nothing kept"], rows
    )


def _engine_table(engine: Results) -> str:
    rows = []
    for label in _labels(engine):
        figure = "resident_mb" if label == "session" else "ms_a_step"
        fp32, bf16 = (cell(engine, name, label, figure) for name in (KV_FP32, KV_BF16))
        title = "session, MiB" if label == "session" else label
        rows.append([title, shown(fp32), shown(bf16), shown_ratio(bf16, fp32)])
    return markdown_table(["", "K/V in fp32", "K/V in bf16", "bf16 over fp32"], rows)


def _labels(results: Results) -> Sequence[str]:
    """All jobs' labels in their order."""
    return list(dict.fromkeys(label for jobs in results.values() for label in jobs))
