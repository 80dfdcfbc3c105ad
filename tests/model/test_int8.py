"""Real weights: what int8 costs against fp32, token by token over dialogues of our own."""

import pytest
import torch
from transformers import Qwen2ForCausalLM

from services.encoding import load_tokenizer
from services.engine.attention import Segment
from services.engine.kv_cache import KVCache
from services.engine.loading import load_model
from services.engine.model import Qwen2Model
from services.engine.precision import choose_precision, processor_flags
from services.engine.tasks import ScoredEvent
from services.ready import Ready
from services.settings import Settings
from services.weights import find_model
from tests.model.dialogues import DIALOGUES
from tests.model.feelings import TEXTS
from tests.model.replies import chat_ids
from tests.model.test_labels import SENTENCES

MAX_NLL_GAIN = 0.03
MAX_KL = 0.03
MIN_SAME_CHOICE = 0.93
MIN_SAME_LABEL = 0.98
MIN_TOKENS = 2000


@pytest.fixture(scope="module")
def int8(model_settings: Settings) -> Qwen2Model:
    precision = choose_precision("int8", processor_flags())
    return load_model(find_model(model_settings).folder, precision)


def _laid_out(ready: Ready) -> list[list[int]]:
    """Each dialogue as the token ids that the chat prompt would make of it."""
    tokenizer = load_tokenizer(ready.files.folder)
    dialogues = []
    for turns in DIALOGUES:
        roles = [("user", "assistant")[index % 2] for index in range(len(turns))]
        messages = [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        dialogues.append(tokenizer.encode(text))
    return dialogues


@torch.inference_mode()
def test_int8_keeps_the_quality_of_fp32(
    ready: Ready, stock: Qwen2ForCausalLM, int8: Qwen2Model
) -> None:
    nll_gain, divergence, same, count = 0.0, 0.0, 0, 0
    for ids in _laid_out(ready):
        exact = stock(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        kv = KVCache(int8.kv_spec, len(ids))
        rough = int8.forward([Segment(ids, kv, len(ids))])[:-1].log_softmax(-1)
        following = torch.tensor(ids[1:]).unsqueeze(1)
        nll_gain += float((exact.gather(1, following) - rough.gather(1, following)).sum())
        divergence += float((exact.exp() * (exact - rough)).sum())
        same += int((exact.argmax(-1) == rough.argmax(-1)).sum())
        count += len(following)
    figures = (
        f"{count} tokens, {nll_gain / count:+.4f}, {divergence / count:.4f}, {same / count:.3f}"
    )
    assert count >= MIN_TOKENS
    assert nll_gain / count <= MAX_NLL_GAIN, figures
    assert divergence / count <= MAX_KL, figures
    assert same / count >= MIN_SAME_CHOICE, figures


def test_int8_gives_the_labels_of_fp32(ready: Ready, int8: Qwen2Model) -> None:
    """Against our own fp32, which test_proof holds to the stock model: it has the prefix kept."""
    scorer = ready.scorers["sentiment"]
    same = []
    for text in (*TEXTS, *(text for texts in SENTENCES.values() for text in texts)):
        task = scorer.task(ready.encoder.encode_text(text))
        exact = ready.engine.submit(task).next_event(300)
        assert isinstance(exact, ScoredEvent)
        firsts = [choice[0] for choice in task.choices]
        kv = KVCache(int8.kv_spec, len(task.prompt_ids))
        rough = int8.forward([Segment(task.prompt_ids, kv, 1)])[0, firsts]
        same.append(int(rough.argmax()) == exact.log_probs.index(max(exact.log_probs)))
    assert sum(same) / len(same) >= MIN_SAME_LABEL


def test_int8_logits_do_not_depend_on_the_neighbours(ready: Ready, int8: Qwen2Model) -> None:
    prompts = [chat_ids(ready, turns[0]) for turns in DIALOGUES[:8]]
    alone, together = ([KVCache(int8.kv_spec, len(p) + 3) for p in prompts] for _ in range(2))
    for _prefill_then_decode in range(4):
        single = [int8.forward([Segment(p, kv, 1)]) for p, kv in zip(prompts, alone, strict=True)]
        segments = [Segment(p, kv, 1) for p, kv in zip(prompts, together, strict=True)]
        batch = int8.forward(segments)
        assert torch.equal(batch, torch.cat(single))
        prompts = [[int(row.argmax())] for row in batch]
