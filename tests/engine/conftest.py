from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from services.engine.engine import Engine
from tests.engine.stepwise import StepwiseForward
from tests.engine.stock_pair import SHAPES, Pair, make_pair


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

    def start_engine(
        budget_tokens: int = 100_000, max_running: int = 16, max_chat_tokens: int | None = None
    ) -> Engine:
        engine = Engine(
            lambda: forward,
            kv_budget_bytes=budget_tokens * forward.kv_spec.token_bytes,
            max_running=max_running,
            max_chat_tokens=max_chat_tokens,
        )
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


@pytest.fixture(
    scope="module",
    params=[(shape, is_tied) for shape in SHAPES for is_tied in (True, False)],
    ids=lambda param: f"{param[0]}-{'tied' if param[1] else 'untied'}",
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    shape, is_tied = request.param
    return make_pair(tmp_path_factory.mktemp("pair"), shape, is_tied=is_tied)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(tmp_path_factory.mktemp("grouped"), "grouped", is_tied=False)
