"""All that answering needs, once the model is loaded. Imports torch: only for who serves."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from services.dialogue import Dialogue
from services.encoding import TemplateError, TextEncoder, load_tokenizer
from services.engine.engine import Engine
from services.engine.loading import give_back_memory, load_model, usable_cores
from services.engine.model import Forward
from services.engine.precision import Precision, choose_precision, free_memory, processor_flags
from services.engine.tasks import ScoredEvent
from services.prompt_encoding import EncodedPrompt, PromptEncoder
from services.prompts import Prompt
from services.schemas import MAX_NEW_TOKENS
from services.sentiment import LabelScorer
from services.settings import Settings
from services.weights import ModelFiles, find_model, read_config

log = logging.getLogger(__name__)


class UnfitError(Exception):
    """These settings or prompts can't work with this model; the message names what."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The model's parts that requests use, none of which changes any more."""

    files: ModelFiles
    precision: str
    engine: Engine
    encoder: TextEncoder
    prompts: Mapping[str, Prompt]
    scorers: Mapping[str, LabelScorer]
    dialogues: Mapping[str, Dialogue]


def make_engine(settings: Settings, files: ModelFiles, precision: Precision) -> Engine:
    """An engine for these files, not yet started; it loads them in its own thread."""
    num_threads = settings.threads or usable_cores()

    def load() -> Forward:
        # One thread for each layer being read, and only then all of them for each product.
        torch.set_num_threads(1)
        model = load_model(files.folder, precision, num_threads)
        torch.set_num_threads(num_threads)
        return model

    return Engine(
        load,
        kv_budget_bytes=settings.kv_budget_mb * 2**20,
        max_running=settings.max_running,
        max_chat_tokens=settings.context_tokens + MAX_NEW_TOKENS,
    )


def make_ready(
    settings: Settings, prompts: Mapping[str, Prompt], engine: Engine | None = None
) -> Ready:
    """Load the model; encode the prompts, prefill what they begin with, calibrate the labels.

    `engine`, not yet started, takes the place of the one that the settings ask for.

    Raises:
        UnfitError: a prompt can't be encoded for this model, or the longest request that it and
            the settings allow has no room in `AIO_CONTEXT_TOKENS`, the model's positions or
            `AIO_KV_BUDGET_MB`.
        WeightsError, UnsupportedModelError, TemplateError, EngineError: see there.
    """
    files = find_model(settings)
    precision = choose_precision(
        settings.precision,
        processor_flags(),
        settings.kv_precision,
        weights=read_config(files.folder).num_weights if engine is None else 0,
        free=free_memory(),
    )
    log.info(
        "loading %s in %s (%s), K/V in %s",
        files.name,
        precision.name,
        precision.reason,
        precision.kv,
    )
    engine = engine or make_engine(settings, files, precision)
    engine.start()
    try:
        tokenizer = load_tokenizer(files.folder)  # meanwhile the engine loads the weights
        encoder = TextEncoder.from_folder(files.folder, tokenizer)
        encoded = _encode_all(prompts, PromptEncoder(tokenizer))
        engine.wait_loaded()
        scorers, dialogues = _prefill_all(settings, encoded, engine, encoder)
    except BaseException:
        engine.stop()
        raise
    del tokenizer
    give_back_memory()
    return Ready(files, precision.name, engine, encoder, prompts, scorers, dialogues)


def _encode_all(
    prompts: Mapping[str, Prompt], prompt_encoder: PromptEncoder
) -> dict[str, EncodedPrompt]:
    encoded = {}
    for name, prompt in prompts.items():
        try:
            encoded[name] = prompt_encoder.encode(prompt)
        except TemplateError as error:
            raise UnfitError(f"{prompt.file}: {error}") from None
    return encoded


def _prefill_all(
    settings: Settings,
    prompts: Mapping[str, EncodedPrompt],
    engine: Engine,
    encoder: TextEncoder,
) -> tuple[dict[str, LabelScorer], dict[str, Dialogue]]:
    scorers: dict[str, LabelScorer] = {}
    dialogues: dict[str, Dialogue] = {}
    for name, encoded in prompts.items():
        _check_room(settings, encoded, engine)
        engine.add_prefix(encoded.head_ids)
        if encoded.prompt.kind == "chat":
            dialogues[name] = Dialogue(encoded, settings.context_tokens)
        else:
            scorers[name] = LabelScorer(encoded)
            _calibrate(scorers[name], encoded.prompt, encoder, engine)
    return scorers, dialogues


def _check_room(settings: Settings, encoded: EncodedPrompt, engine: Engine) -> None:
    """The longest request that the settings allow has to be able to run, or they promise it."""
    prompt = encoded.prompt
    longest = len(encoded.head_ids) + len(encoded.tail_ids) + settings.max_text_tokens
    if prompt.kind == "chat":
        if longest > settings.context_tokens:
            raise UnfitError(
                f"{prompt.file}: the prompt with a text of AIO_MAX_TEXT_TOKENS "
                f"({settings.max_text_tokens}) has {longest} tokens, over AIO_CONTEXT_TOKENS "
                f"({settings.context_tokens})"
            )
        longest = settings.context_tokens + MAX_NEW_TOKENS
    branches = [len(choice) - 1 for choice in encoded.choices]
    shortage = engine.shortage(longest, branches)
    if shortage is not None:
        raise UnfitError(
            f"{prompt.file}: its longest request can't run with AIO_CONTEXT_TOKENS="
            f"{settings.context_tokens}, AIO_MAX_TEXT_TOKENS={settings.max_text_tokens}, "
            f"AIO_KV_BUDGET_MB={settings.kv_budget_mb}: {shortage}"
        )


def _calibrate(scorer: LabelScorer, prompt: Prompt, encoder: TextEncoder, engine: Engine) -> None:
    handles = [
        engine.submit(scorer.task(encoder.encode_text(text))) for text in prompt.content_free
    ]
    rows = []
    for handle in handles:
        event = handle.next_event()
        if not isinstance(event, ScoredEvent):
            raise UnfitError(f"the labels of {prompt.name!r} can't be calibrated: {event}")
        rows.append(event.log_probs)
    if rows:
        scorer.calibrate(rows)
