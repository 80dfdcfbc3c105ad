from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from services.engine.engine import Engine
from tests.engine.stepwise import StepwiseForward


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Tiny products gain nothing by threads, and wait for each other where cores are few."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def forward(tiny_folder: Path) -> StepwiseForward:
    return StepwiseForward(tiny_folder)


@pytest.fixture
def start(forward: StepwiseForward) -> Iterator[Callable[..., Engine]]:
    """Starts an engine over the forward; its K/V budget is in tokens."""
    engines: list[Engine] = []

    def start_engine(budget_tokens: int = 100_000, max_running: int = 16) -> Engine:
        budget = budget_tokens * forward.kv_spec.token_bytes
        engine = Engine(lambda: forward, kv_budget_bytes=budget, max_running=max_running)
        engines.append(engine)
        engine.start()
        engine.wait_loaded()
        return engine

    yield start_engine
    forward.let_go()
    for engine in engines:
        engine.stop()


@pytest.fixture
def engine(start: Callable[..., Engine]) -> Engine:
    return start()
