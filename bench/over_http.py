"""What the whole service does, asked over HTTP by clients on the same machine, and how much of
the engine's own speed that is."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.contender import Figures, Plan, UnavailableError
from bench.load import label_probe, reply_load
from bench.memory import memory_figures
from bench.processes import Wanted, started
from bench.report import cell, markdown_table, shown, shown_ratio
from bench.rounds import Job, Results, interleave
from bench.service import Service, running_service

TITLE = "Over HTTP"

HTTP, ENGINE = "over HTTP", "the engine without HTTP"
CLIENTS, QUICK_CLIENTS = (1, 4, 8, 16), (1, 8)
COMPARED_CLIENTS = 8
REPLIES_BESIDE = 8
SECONDS, QUICK_SECONDS = 15.0, 6.0
PROBE_SECONDS, QUICK_PROBE_SECONDS = 8.0, 3.0
NEW_TOKENS, QUICK_NEW_TOKENS = 128, 32


@dataclass(frozen=True, slots=True)
class HttpRuns:
    """The jobs of `bench.ours` that its clients share, asked over HTTP."""

    service: Service

    def run(self, job: str, **params: Any) -> Figures:
        if job == "load":
            return reply_load(self.service.ask, **params)
        if job == "label_probe":
            return label_probe(self.service.ask, **params)
        if job == "memory":
            return memory_figures(self.service.worker_pid) if self.service.worker_pid else {}
        raise UnavailableError(f"the service has no job {job}")


def measure(plan: Plan) -> dict[str, Any]:
    """See `Section`."""
    alone, compared = _jobs(plan)
    with ExitStack() as stack:
        plan.say("starting the service")
        service = stack.enter_context(running_service(plan.settings, plan.work_dir))
        children = stack.enter_context(started({ENGINE: Wanted("ours", plan.settings)}, plan))
        over_http = HttpRuns(service)
        resident = over_http.run("memory")
        return {
            "start_s": service.start_s,
            "memory_before": resident,
            "compared": interleave({HTTP: over_http, **children}, compared, plan),
            "alone": interleave({HTTP: over_http}, alone, plan),
            "memory_after": over_http.run("memory"),
        }


def _jobs(plan: Plan) -> tuple[list[Job], list[Job]]:
    """What is asked over HTTP alone, and what of the engine too."""
    clients = QUICK_CLIENTS if plan.is_quick else CLIENTS
    seconds = QUICK_SECONDS if plan.is_quick else SECONDS
    probe_s = QUICK_PROBE_SECONDS if plan.is_quick else PROBE_SECONDS
    new_tokens = QUICK_NEW_TOKENS if plan.is_quick else NEW_TOKENS
    loads = {
        number: Job(
            _load(number),
            "load",
            {"clients": number, "seconds": seconds, "new_tokens": new_tokens},
        )
        for number in clients
    }
    compared = [loads.pop(COMPARED_CLIENTS)]
    compared += [
        Job(_probe(replies), "label_probe", {"replies": replies, "seconds": probe_s})
        for replies in (0, REPLIES_BESIDE)
    ]
    return list(loads.values()), compared


def _load(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


def _probe(replies: int) -> str:
    return f"labels while {replies} replies run"


def tables(result: Mapping[str, Any]) -> str:
    """See `Section`."""
    return "\n\n".join(
        [
            f"Ready {result['start_s']:.1f} s after its start. "
            f"Resident: {_mib(result['memory_before'])} before the first request, "
            f"{_mib(result['memory_after'])} after the last. Clients run on the same cores; every "
            "request is a label and a streamed reply, a session's first turn.",
            _loads(result["alone"], result["compared"]),
            f"The same load of {COMPARED_CLIENTS} on the engine, without HTTP, and labels alone "
            "and beside running replies:",
            _compared(result["compared"]),
        ]
    )


def _mib(memory: Figures) -> str:
    return f"{memory['resident_mb']:.0f} MiB" if memory else "unknown"


def _loads(alone: Results, compared: Results) -> str:
    names = ["label_p50", "label_p95", "first_p50", "first_p95"]
    names += ["tokens_a_second", "requests_a_minute"]
    rows = []
    for clients in CLIENTS:
        results = compared if clients == COMPARED_CLIENTS else alone
        cells = [cell(results, HTTP, _load(clients), name) for name in names]
        if any(cells):
            rows.append([_load(clients), *map(shown, cells)])
    head = ["", "label p50, ms", "label p95", "first token p50, ms", "first token p95"]
    return markdown_table([*head, "tokens a second", "requests a minute"], rows)


def _compared(compared: Results) -> str:
    idle, busy = _probe(0), _probe(REPLIES_BESIDE)
    rows = []
    for title, label, figure in (
        ("tokens a second", _load(COMPARED_CLIENTS), "tokens_a_second"),
        ("requests a minute", _load(COMPARED_CLIENTS), "requests_a_minute"),
        ("label p50, idle, ms", idle, "p50"),
        (f"label p95 while {REPLIES_BESIDE} replies run, ms", busy, "p95"),
    ):
        http, engine = (cell(compared, name, label, figure) for name in (HTTP, ENGINE))
        rows.append([title, shown(http), shown(engine), shown_ratio(http, engine)])
    ratios = [
        shown_ratio(cell(compared, name, busy, "p95"), cell(compared, name, idle, "p50"))
        for name in (HTTP, ENGINE)
    ]
    rows.append(["label p95 busy over p50 idle", *ratios, ""])
    return markdown_table(["", HTTP, ENGINE, "over HTTP, of it"], rows)
