"""Our forward against transformers' `Qwen2ForCausalLM`, on tiny random checkpoints."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model
from services.engine.precision import Precision
from tests.engine.stock_pair import MAX_TOKENS, THETA, Pair, assert_close


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
    segments = [Segment(ids, pair.cache(prefix), len(ids)) for ids in texts]
    logits = pair.ours.forward(segments).split([len(ids) for ids in texts])
    for text, ours in zip(texts, logits, strict=True):
        assert_close(ours, pair.stock_logits(head + text)[len(head) :])


def test_copied_prefix(pair: Pair) -> None:
    head, text = pair.random_ids(40), pair.random_ids(90, seed=2)
    kv = KVCache.copying(pair.ours.kv_spec, MAX_TOKENS, pair.prefilled(head))
    assert_close(pair.run(text, kv), pair.stock_logits(head + text)[len(head) :])


def test_prefix_own_tokens_and_branch(pair: Pair) -> None:
    """Attention over three spans, of several rows and of one."""
    head, text, branch = (pair.random_ids(n, seed=n) for n in (70, 40, 5))
    kv = pair.cache(pair.prefilled(head))
    pair.run(text, kv)
    parts = kv.branch(len(branch))
    logits = [pair.run(branch[:4], parts), pair.run(branch[4:], parts)]
    assert len(parts.spans()) == 3
    assert_close(torch.cat(logits), pair.stock_logits(head + text + branch)[-5:])


def test_prefix_is_unchanged_after_thirty_others_ran_on_it(grouped: Pair) -> None:
    prefix = grouped.prefilled(grouped.random_ids(70))
    before = [span.clone() for span in prefix.spans()]
    for seed in range(30):
        kv = grouped.cache(prefix)
        grouped.run(grouped.random_ids(1 + 5 * seed, seed), kv)
        grouped.run(grouped.random_ids(3, seed), kv.branch(3))
        kv.truncate(len(prefix))
        grouped.run(grouped.random_ids(2, seed), kv)
    assert all(torch.equal(old, new) for old, new in zip(before, prefix.spans(), strict=True))


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
