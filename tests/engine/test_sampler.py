import math

import pytest
import torch

from services.engine.sampler import FIRST_SHARE, Sampler
from services.engine.tasks import EngineError, Sampling


def some_logits(size: int = 1000, scale: float = 2.0, seed: int = 0) -> torch.Tensor:
    return scale * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def draws(logits: torch.Tensor, num: int, **sampling: float) -> list[int]:
    sampler = Sampler(Sampling(**{"temperature": 1.0, "seed": 1, **sampling}))
    return [sampler.next_id(logits, []) for _ in range(num)]


def nucleus(logits: torch.Tensor, top_p: float, top_k: int = 0) -> tuple[torch.Tensor, list[int]]:
    """The plain way: sort all, walk until the sum is there. Probabilities and ids of the kept."""
    ids = logits.argsort(descending=True)
    if top_k:
        ids = ids[:top_k]
    probs = logits[ids].softmax(-1)
    kept, total = 0, 0.0
    while kept < len(ids) and total < top_p:
        total += float(probs[kept])
        kept += 1
    return probs[:kept], ids[:kept].tolist()


# --- greedy ---


def test_greedy_takes_the_likeliest() -> None:
    logits = some_logits()
    assert set(draws(logits, 5, temperature=0.0)) == {int(logits.argmax())}


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-45, 5e-324])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_tiny_temperature_is_greedy(temperature: float, scale: float) -> None:
    logits = some_logits(scale=scale)
    assert set(draws(logits, 20, temperature=temperature)) == {int(logits.argmax())}


def test_tiny_top_p_is_greedy() -> None:
    logits = some_logits()
    assert set(draws(logits, 20, top_p=1e-300)) == {int(logits.argmax())}


# --- the generator ---


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_same_seed_draws_the_same(seed: int) -> None:
    logits = some_logits()
    assert draws(logits, 50, seed=seed) == draws(logits, 50, seed=seed)


def test_other_seed_draws_otherwise() -> None:
    logits = some_logits()
    assert draws(logits, 50, seed=1) != draws(logits, 50, seed=2)


def test_no_seed_draws_otherwise_each_time() -> None:
    logits = torch.zeros(1000)
    first, second = (Sampler(Sampling(temperature=1.0)) for _ in range(2))
    assert [first.next_id(logits, []) for _ in range(20)] != [
        second.next_id(logits, []) for _ in range(20)
    ]


def test_global_generator_is_neither_read_nor_moved() -> None:
    logits = some_logits()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draws(logits, 50)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert draws(logits, 50) == first


def test_neighbours_do_not_change_the_draws() -> None:
    logits = some_logits()
    alone = draws(logits, 20, seed=3)
    mine, other = (Sampler(Sampling(temperature=1.0, seed=seed)) for seed in (3, 4))
    mixed = []
    for _ in range(20):
        mixed.append(mine.next_id(logits, []))
        other.next_id(logits, [])
    assert mixed == alone


# --- what may be drawn, and how often ---


@pytest.mark.parametrize("top_k", [0, 40, 600])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.99])
@pytest.mark.parametrize(
    ("size", "scale"), [(60, 2.0), (1000, 3.0), (1000, 0.1)], ids=["small", "peaked", "flat"]
)
def test_nucleus_is_exact(size: int, scale: float, top_p: float, top_k: int) -> None:
    """One token more or less among the kept would make other draws of the same seed."""
    logits = some_logits(size, scale)
    probs, ids = nucleus(logits, top_p, top_k)
    generator = torch.Generator().manual_seed(1)
    wanted = [ids[int(torch.multinomial(probs, 1, generator=generator))] for _ in range(100)]
    assert draws(logits, 100, top_p=top_p, top_k=top_k) == wanted


def test_nucleus_reaches_beyond_the_first_candidates() -> None:
    """One likely token, and a thousand below its share that weigh more than it together."""
    logits = torch.zeros(200_000)
    logits[7] = -math.log(FIRST_SHARE) + 0.1
    drawn = draws(logits, 300, top_p=0.9)
    assert 7 in drawn
    assert len(set(drawn)) > 200


def test_top_k_cuts_before_top_p() -> None:
    """0.5 of what top-k left over is one token, 0.5 of all would be two."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    assert set(draws(logits, 500, top_p=0.5)) == {0, 1}
    assert set(draws(logits, 500, top_p=0.5, top_k=2)) == {0}


def test_top_k_over_the_vocabulary_keeps_all() -> None:
    assert set(draws(torch.zeros(5), 200, top_k=99)) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    "sampling",
    [{}, {"top_p": 0.8}, {"top_k": 5}, {"top_k": 12, "top_p": 0.8}, {"temperature": 0.5}],
    ids=str,
)
def test_frequencies_are_the_probabilities(sampling: dict[str, float]) -> None:
    logits, num = some_logits(20, scale=1.0), 4000
    scaled = logits / sampling.get("temperature", 1.0)
    probs, ids = nucleus(scaled, sampling.get("top_p", 1.0), int(sampling.get("top_k", 0)))
    wanted = torch.zeros(20)
    wanted[ids] = probs / probs.sum()
    counts = torch.bincount(torch.tensor(draws(logits, num, **sampling)), minlength=20)
    deviations = (num * wanted * (1 - wanted)).sqrt()
    assert ((counts - num * wanted).abs() <= 5 * deviations).all()


# --- repetition penalty ---


def test_penalty_divides_positive_and_multiplies_negative() -> None:
    sampler = Sampler(Sampling(repetition_penalty=2.0))
    assert sampler.next_id(torch.tensor([3.0, 2.0, -1.0]), [0]) == 1
    assert sampler.next_id(torch.tensor([-1.5, -1.0, -9.0]), [1, 1, 1]) == 0
    assert sampler.next_id(torch.tensor([5.0, 2.0, -1.0]), [0, 0, 0]) == 0  # once, not thrice


def test_penalty_leaves_the_logits_alone() -> None:
    logits = some_logits()
    before = logits.clone()
    Sampler(Sampling(repetition_penalty=1.5)).next_id(logits, [1, 2, 3])
    assert torch.equal(logits, before)


def test_no_penalty_on_an_empty_reply() -> None:
    assert Sampler(Sampling(repetition_penalty=2.0)).next_id(torch.tensor([3.0, 2.0]), []) == 0


# --- broken logits ---


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_broken_logit_is_an_error(value: float, temperature: float) -> None:
    logits = some_logits()
    logits[17] = value
    with pytest.raises(EngineError, match="not finite"):
        Sampler(Sampling(temperature=temperature, seed=1)).next_id(logits, [])


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_nothing_but_minus_infinity_is_an_error(temperature: float) -> None:
    with pytest.raises(EngineError, match="not finite"):
        Sampler(Sampling(temperature=temperature, seed=1)).next_id(torch.full((9,), -math.inf), [])


def test_minus_infinity_is_never_drawn() -> None:
    logits = torch.tensor([0.0, -math.inf, 0.0])
    assert set(draws(logits, 200)) == {0, 2}
