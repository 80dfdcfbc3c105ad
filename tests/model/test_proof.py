"""Real weights, fp32, greedy: our engine's tokens are those of transformers' `generate`."""

import itertools

import pytest
import torch
from transformers import Qwen2ForCausalLM

from services.ready import Ready
from services.sessions import Turn
from tests.model.replies import NUM_TOKENS, assert_near_tie, chat_ids, collect, submit

PROMPTS = [
    "Explain in two sentences why the sky is blue.",
    "Write a Python function that reverses a list.",
    "What should I cook tonight with rice, eggs and spinach?",
    "Tell me a short story about a lighthouse keeper.",
    "My flight was cancelled and I am stuck at the airport.",
    "List five countries in South America.",
    "请用两句话介绍一下长城。",
    "今天的服务太差了，等了一个小时。",
    "怎样才能睡得更好？",
    "写一首关于秋天的短诗。",
    "我的电脑开不了机，应该怎么办？",
    "把“早上好”翻译成英语和法语。",
]
MAX_NEAR_TIES = 1


@pytest.fixture(scope="module")
def alone(ready: Ready) -> list[list[int]]:
    """Each prompt's reply, one after the other."""
    return [collect(submit(ready, chat_ids(ready, text)))[0] for text in PROMPTS]


def _generated(
    stock: Qwen2ForCausalLM, prompt_ids: list[int], end_ids: frozenset[int]
) -> list[int]:
    ids = torch.tensor([prompt_ids])
    out = stock.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=sorted(end_ids),
    )
    reply: list[int] = out[0, len(prompt_ids) :].tolist()
    return list(itertools.takewhile(lambda token_id: token_id not in end_ids, reply))


def test_replies_equal_transformers_generate(
    ready: Ready, stock: Qwen2ForCausalLM, alone: list[list[int]]
) -> None:
    near_ties = 0
    for text, ours in zip(PROMPTS, alone, strict=True):
        prompt_ids = chat_ids(ready, text)
        theirs = _generated(stock, prompt_ids, ready.encoder.end_ids)
        if ours != theirs:
            assert_near_tie(stock, prompt_ids, theirs, ours)
            near_ties += 1
    assert near_ties <= MAX_NEAR_TIES


def test_eight_at_once_reply_as_alone(
    ready: Ready, stock: Qwen2ForCausalLM, alone: list[list[int]]
) -> None:
    near_ties = 0
    for start in (0, 4):
        texts = PROMPTS[start : start + 8]
        handles = [submit(ready, chat_ids(ready, text)) for text in texts]
        for text, handle, reply in zip(texts, handles, alone[start:], strict=False):
            together, _ = collect(handle)
            if together != reply:
                assert_near_tie(stock, chat_ids(ready, text), reply, together)
                near_ties += 1
    assert near_ties <= MAX_NEAR_TIES


@pytest.mark.parametrize(
    "texts",
    [
        ("My dog is called Biscuit.", "He is four years old.", "What is my dog's name?"),
        ("我的猫叫咪咪。", "它今年三岁了。", "我的猫叫什么名字？"),
    ],
)
def test_third_turn_is_the_same_from_the_cache_and_from_scratch(
    ready: Ready, stock: Qwen2ForCausalLM, texts: tuple[str, str, str]
) -> None:
    history: tuple[Turn, ...] = ()
    for text in texts:
        turn = ready.dialogues["chat"].next_turn(history, ready.encoder.encode_text(text))
        reply, end = collect(submit(ready, turn.prompt_ids, key=texts[0]))
        history = turn.finished(text, "", None, reply)
    assert end.cached_tokens > 0
    scratch, uncached = collect(submit(ready, turn.prompt_ids))
    assert uncached.cached_tokens == 0
    if reply != scratch:
        assert_near_tie(stock, turn.prompt_ids, scratch, reply)


def test_prefixes_are_untouched_by_thirty_requests(ready: Ready) -> None:
    spans = [span for kv in ready.engine.prefixes() for span in kv.spans()]
    before = [span.clone() for span in spans]
    assert spans
    scorer = ready.scorers["sentiment"]
    texts = [PROMPTS[n % len(PROMPTS)] for n in range(24)]
    labels = [ready.engine.submit(scorer.task(ready.encoder.encode_text(t))) for t in texts]
    chats = [submit(ready, chat_ids(ready, text)) for text in PROMPTS[:6]]
    for handle in labels:
        assert handle.next_event(300) is not None
    for handle in chats:
        collect(handle)
    assert all(torch.equal(new, old) for new, old in zip(spans, before, strict=True))
