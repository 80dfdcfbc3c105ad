"""Our forward against transformers' `Qwen2ForCausalLM`, on tiny random checkpoints."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import Qwen2ForCausalLM

from services.engine.kv_cache import KVCache, Span
from services.engine.loading import load_model
from services.engine.model import Qwen2Model, Segment
from services.engine.precision import Precision
from tests.tiny import write_checkpoint

TOLERANCE = 1e-4
THETA = 50_000.0  # far from every default, so that a config misread shows
SHAPES = {
    "full": {"num_attention_heads": 4, "num_key_value_heads": 4},
    "grouped": {"num_attention_heads": 4, "num_key_value_heads": 2},
    "16/2": {
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "hidden_size": 128,
        "initializer_range": 0.14,  # scores of twice the width stay as sharp, not sharper
    },
}


@dataclass
class Pair:
    """One checkpoint twice: in the stock model and in ours."""

    folder: Path
    stock: Qwen2ForCausalLM
    ours: Qwen2Model

    def random_ids(self, length: int, seed: int = 1) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        ids: list[int] = torch.randint(
            self.stock.config.vocab_size, (length,), generator=generator
        ).tolist()
        return ids

    def cache(self) -> KVCache:
        return KVCache(self.ours.kv_spec)

    def stock_logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.stock(torch.tensor([token_ids])).logits[0]

    def run(self, token_ids: Sequence[int], kv: KVCache) -> torch.Tensor:
        """Our logits of all these tokens behind `kv`."""
        return self.ours.forward([Segment(token_ids, kv, len(token_ids))])

    def prefilled(self, token_ids: Sequence[int]) -> KVCache:
        kv = self.cache()
        self.run(token_ids, kv)
        return kv


def make_pair(folder: Path, shape: str, *, is_tied: bool) -> Pair:
    rope = {"rope_type": "default", "rope_theta": THETA}
    stock = write_checkpoint(
        folder, **SHAPES[shape], tie_word_embeddings=is_tied, rope_parameters=rope
    )
    return Pair(folder, stock, load_model(folder, Precision("fp32")))


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


def assert_close(ours: torch.Tensor, stock: torch.Tensor) -> None:
    torch.testing.assert_close(ours, stock, rtol=0, atol=TOLERANCE)


def test_whole_prompt(pair: Pair) -> None:
    ids = pair.random_ids(300)
    assert_close(pair.run(ids, pair.cache()), pair.stock_logits(ids))


@pytest.mark.parametrize("size", [1, 7, 64, 128])
def test_prompt_in_chunks(pair: Pair, size: int) -> None:
    ids, kv = pair.random_ids(200), pair.cache()
    logits = [pair.run(ids[at : at + size], kv) for at in range(0, len(ids), size)]
    assert_close(torch.cat(logits), pair.stock_logits(ids))


def test_ragged_batch(pair: Pair) -> None:
    """A whole prompt, a chunk behind others, a decode step and a branch in one forward."""
    whole, chunked, decoded = (pair.random_ids(n, seed=n) for n in (5, 130, 71))
    prompt, branch = pair.random_ids(20, seed=2), pair.random_ids(3, seed=3)
    logits = pair.ours.forward(
        [
            Segment(whole, pair.cache(), 2),
            Segment(chunked[90:], pair.prefilled(chunked[:90]), 1),
            Segment(decoded[-1:], pair.prefilled(decoded[:-1]), 1),
            Segment(branch, pair.prefilled(prompt).branch(3), 3),
        ]
    )
    wanted = [(whole, 2), (chunked, 1), (decoded, 1), (prompt + branch, 3)]
    assert_close(logits, torch.cat([pair.stock_logits(ids)[-rows:] for ids, rows in wanted]))


def test_shared_prefix(pair: Pair) -> None:
    head = pair.random_ids(70)
    prefix = pair.prefilled(head)
    texts = [pair.random_ids(n, seed=n) for n in (4, 90)]
    caches = [KVCache(pair.ours.kv_spec, prefix.spans(), prefix.token_ids) for _ in texts]
    segments = [Segment(ids, kv, len(ids)) for ids, kv in zip(texts, caches, strict=True)]
    logits = pair.ours.forward(segments).split([len(ids) for ids in texts])
    for text, ours in zip(texts, logits, strict=True):
        assert_close(ours, pair.stock_logits(head + text)[len(head) :])


def _used(span: Span) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of what is in use; the room behind it is whatever the memory held, even NaN."""
    block = span.block
    return block.keys[:, :, : span.used].clone(), block.values[:, :, : span.used].clone()


def test_prefix_is_unchanged_after_thirty_others_ran_on_it(grouped: Pair) -> None:
    prefix = grouped.prefilled(grouped.random_ids(70))
    before = [_used(span) for span in prefix.spans()]
    for seed in range(30):
        kv = KVCache(grouped.ours.kv_spec, prefix.spans(), prefix.token_ids)
        grouped.run(grouped.random_ids(1 + 5 * seed, seed), kv)
        grouped.run(grouped.random_ids(3, seed), kv.branch(3))
        kv.truncate(len(prefix))
        grouped.run(grouped.random_ids(2, seed), kv)
    after = [_used(span) for span in prefix.spans()]
    assert all(
        torch.equal(old, new)
        for pair_before, pair_after in zip(before, after, strict=True)
        for old, new in zip(pair_before, pair_after, strict=True)
    )


def test_sequence_goes_on_after_its_branches(pair: Pair) -> None:
    ids = pair.random_ids(80)
    kv = pair.prefilled(ids[:66])
    for seed in (2, 3):
        branch = pair.random_ids(4, seed)
        ours = pair.run(branch, kv.branch(4))
        assert_close(ours, pair.stock_logits(ids[:66] + branch)[66:])
    assert_close(pair.run(ids[66:], kv), pair.stock_logits(ids)[66:])


def test_truncated_sequence_takes_other_tokens(grouped: Pair) -> None:
    first, second = grouped.random_ids(150), grouped.random_ids(60, seed=2)
    kv = grouped.prefilled(first)
    kv.truncate(100)
    assert_close(grouped.run(second, kv), grouped.stock_logits(first[:100] + second)[100:])


def test_no_logits_where_none_are_wanted(grouped: Pair) -> None:
    logits = grouped.ours.forward([Segment([1, 2, 3], grouped.cache())])
    assert logits.shape == (0, grouped.stock.config.vocab_size)


def to_old_rope(config: dict[str, object]) -> None:
    del config["rope_parameters"]
    config["rope_theta"] = THETA


def to_new_rope(config: dict[str, object]) -> None:
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": THETA}
    config.pop("rope_theta", None)


@pytest.mark.parametrize("rewrite", [to_old_rope, to_new_rope])
def test_both_forms_of_the_rope_config(
    pair: Pair, tmp_path: Path, rewrite: Callable[[dict[str, object]], None]
) -> None:
    config = json.loads((pair.folder / "config.json").read_text("utf-8"))
    rewrite(config)
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "model.safetensors").symlink_to(pair.folder / "model.safetensors")
    ids = pair.random_ids(90)
    ours = Pair(tmp_path, pair.stock, load_model(tmp_path, Precision("fp32")))
    assert_close(ours.run(ids, ours.cache()), pair.stock_logits(ids))


def test_positions_are_the_models_own(grouped: Pair) -> None:
    assert load_model(grouped.folder, Precision("fp32")).max_positions == 4096


def test_bf16_stays_near_fp32(pair: Pair) -> None:
    """Off by less than a twentieth of the logits' own spread; measured 2 to 3.5 %."""
    ids = pair.random_ids(200)
    model = load_model(pair.folder, Precision("bf16"))
    logits = model.forward([Segment(ids, KVCache(model.kv_spec), len(ids))])
    stock = pair.stock_logits(ids)
    assert logits.dtype == torch.float32
    assert (logits - stock).std() < 0.05 * stock.std()


def test_batched_in_bf16_equals_alone(grouped: Pair) -> None:
    model = load_model(grouped.folder, Precision("bf16"))
    prompts = [grouped.random_ids(n, seed=n) for n in (3, 40, 9)]
    alone = [model.forward([Segment(p, KVCache(model.kv_spec), 1)]) for p in prompts]
    batched = model.forward([Segment(p, KVCache(model.kv_spec), 1) for p in prompts])
    # Other row counts mean other kernels, whose last bits may be rounded otherwise.
    torch.testing.assert_close(batched, torch.cat(alone), rtol=0, atol=0.1)


def test_int8_stays_near_fp32(pair: Pair) -> None:
    """Off by less than a fifteenth of the logits' own spread; measured 5.3 to 5.8 %."""
    ids = pair.random_ids(200)
    model = load_model(pair.folder, Precision("int8"))
    logits = model.forward([Segment(ids, KVCache(model.kv_spec), len(ids))])
    stock = pair.stock_logits(ids)
    assert (logits - stock).std() < stock.std() / 15


def test_int8_numbers_do_not_depend_on_the_neighbours(pair: Pair) -> None:
    model = load_model(pair.folder, Precision("int8"))
    prompts = [pair.random_ids(n, seed=n) for n in (3, 40, 9, 128, 1, 64, 77, 20)]
    alone = [KVCache(model.kv_spec) for _ in prompts]
    together = [KVCache(model.kv_spec) for _ in prompts]
    for _prefill_then_decode in range(3):
        single = [
            model.forward([Segment(ids, kv, 1)]) for ids, kv in zip(prompts, alone, strict=True)
        ]
        batch = model.forward(
            [Segment(ids, kv, 1) for ids, kv in zip(prompts, together, strict=True)]
        )
        assert torch.equal(batch, torch.cat(single))
        prompts = [[int(row.argmax())] for row in batch]
