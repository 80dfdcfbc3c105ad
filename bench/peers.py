"""Section B: this engine and the others, on the same weights and the same work."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.contender import Plan, UnavailableError
from bench.processes import Child, Wanted, started
from bench.report import cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, Results, interleave
from services.settings import Settings

TITLE = "Beside other engines"

OURS = "this service's engine, int8"
LLAMA_CPP = "llama.cpp, Q8_0"
COMPILED = "torch.compile over our forward, int8"

PROMPT_TOKENS, PREFILL_TOKENS = 40, 256
SEQUENCES = (1, 4, 8)
# label of a job, figure, what the column says
COLUMNS = (
    ("first token", "ms", f"first token of {PROMPT_TOKENS}, ms"),
    ("prefill", "ms_a_token", f"prefill of {PREFILL_TOKENS}, ms a token"),
    ("decode 1", "ms_a_step", "1 sequence, ms a token"),
    ("decode 4", "tokens_a_second", "4 sequences, tokens a second"),
    ("decode 8", "tokens_a_second", "8 sequences, tokens a second"),
    ("memory", "resident_mb", "resident, MiB"),
)


def contenders(settings: Settings) -> dict[str, Wanted]:
    """All that are known, by their names in the report."""
    int8, fp32, bf16 = (replace(settings, precision=name) for name in ("int8", "fp32", "bf16"))
    return {
        OURS: Wanted("ours", int8),
        COMPILED: Wanted("compiled", int8),
        LLAMA_CPP: Wanted("llama_cpp", settings),
        "OpenVINO GenAI, Q8_0": Wanted("openvino", settings),
        "ONNX Runtime GenAI, int8": Wanted("onnx", settings),
        "transformers generate, bf16": Wanted("transformers_generate", bf16),
        "transformers generate, fp32": Wanted("transformers_generate", fp32),
    }


def jobs(is_quick: bool) -> list[Job]:
    """Memory is looked at last, with the K/V of eight sequences in it."""
    tokens = {number: 16 if is_quick else 64 if number == 1 else 32 for number in SEQUENCES}
    return [
        Job("first token", "first_token", {"prompt_tokens": PROMPT_TOKENS}),
        Job("prefill", "prefill", {"prompt_tokens": PREFILL_TOKENS}),
        *(
            Job(f"decode {number}", "decode", {"sequences": number, "new_tokens": tokens[number]})
            for number in SEQUENCES
        ),
        Job("memory", "memory"),
    ]


def measure(plan: Plan) -> dict[str, Any]:
    """`results`: see `interleave`; `compile_s`: what compiling took, where it was done."""
    wanted = contenders(plan.settings)
    if plan.is_quick:
        del wanted[COMPILED]
        plan.skip(COMPILED, "compiling takes longer than a quick run")
    with started(wanted, plan) as children:
        results = interleave(children, jobs(plan.is_quick), plan)
        return {"results": results, "compile_s": _compile_s(children)}


def tables(result: Mapping[str, Any]) -> str:
    """Times, then each in units of llama.cpp's, then ours in units of each."""
    results: Results = result["results"]
    names = list(results)
    parts = [
        "Greedy, without speculation, random prompts, nothing cached, as many threads each, behind "
        f"{PROMPT_TOKENS} tokens; batches are of separate sequences. Memory as it is after the "
        "batch of eight. In the ratios less is better, but for tokens a second, where more is.",
        _table(
            "engine",
            {name: [shown(_at(results, name, column)) for column in COLUMNS] for name in names},
        ),
    ]
    if LLAMA_CPP in results:
        parts += [f"Over {LLAMA_CPP}:", _ratios(results, {n: (n, LLAMA_CPP) for n in names})]
    if OURS in results:
        peers = {name: (OURS, name) for name in names if name != OURS}
        parts += [f"{OURS.capitalize()}, over:", _ratios(results, peers)]
    if result["compile_s"] is not None:
        parts.append(f"{COMPILED}: compiling took {result['compile_s']:.0f} s at its start.")
    return "\n\n".join(parts)


def _compile_s(children: Mapping[str, Child]) -> float | None:
    if COMPILED not in children:
        return None
    try:
        return children[COMPILED].run("warm_up")["seconds"]
    except UnavailableError:
        return None  # it ended before; the plan knows why


def _at(results: Results, name: str, column: tuple[str, str, str]) -> Any:
    return cell(results, name, column[0], column[1])


def _ratios(results: Results, pairs: Mapping[str, tuple[str, str]]) -> str:
    return _table(
        "engine",
        {
            name: [
                shown_ratio(_at(results, over, column), _at(results, under, column))
                for column in COLUMNS
            ]
            for name, (over, under) in pairs.items()
        },
    )


def _table(corner: str, rows: Mapping[str, list[str]]) -> str:
    head = [corner, *(column[2] for column in COLUMNS)]
    return markdown_table(head, [[name, *cells] for name, cells in rows.items()])
