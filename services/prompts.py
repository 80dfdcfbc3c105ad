"""The prompt files: one task each, read and checked at start."""

import string
from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from marshmallow import Schema, ValidationError, fields, post_load, validate, validates_schema

from services.errors import field_errors


class PromptError(Exception):
    """A prompt file can't be used; the message names file and key."""


@dataclass(frozen=True, slots=True)
class Example:
    """An earlier turn of a label prompt: a text and its right label."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a chat samples with where the request doesn't say."""

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task. `before` and `after` are the user template around the text."""

    name: str
    kind: str  # "label" or "chat"
    description: str
    before: str
    after: str
    cache: str  # "none" or "session"
    max_new_tokens: int
    system: str = ""
    labels: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    content_free: tuple[str, ...] = ()  # texts without a feeling, to calibrate the labels with
    sampling: SamplingDefaults = SamplingDefaults()
    file: Path = Path()  # where it stands, for whoever has to mend it


def _text(**options: Any) -> fields.String:
    """YAML reads a bare yes, no, on, off or number as something else than text."""
    return fields.String(error_messages={"invalid": "must be text; put it in quotes"}, **options)


class _ExampleSchema(Schema):
    text = _text(required=True, validate=validate.Length(min=1))
    label = _text(required=True)

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Example:
        return Example(**data)


class _SamplingSchema(Schema):
    temperature = fields.Float(validate=validate.Range(0, 2))
    top_p = fields.Float(validate=validate.Range(0, 1, min_inclusive=False))
    top_k = fields.Integer(strict=True, validate=validate.Range(min=0))
    repetition_penalty = fields.Float(validate=validate.Range(1, 2))

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> SamplingDefaults:
        return SamplingDefaults(**data)


class _BudgetSchema(Schema):
    max_new_tokens = fields.Integer(strict=True, required=True, validate=validate.Range(1, 512))


class _PromptSchema(Schema):
    name = _text(required=True, validate=validate.Regexp(r"[a-z][a-z0-9_-]{0,31}\Z"))
    kind = _text(required=True, validate=validate.OneOf(["label", "chat"]))
    description = _text(required=True)
    system = _text()
    user = _text(required=True)
    labels = fields.List(_text(validate=validate.Length(min=1)))
    examples = fields.List(fields.Nested(_ExampleSchema))
    content_free = fields.List(_text(validate=validate.Length(min=1)))
    budget = fields.Nested(_BudgetSchema, required=True)
    sampling = fields.Nested(_SamplingSchema)
    cache = _text(required=True, validate=validate.OneOf(["none", "session"]))

    @validates_schema
    def _check_user(self, data: dict[str, Any], **_: Any) -> None:
        before, _after = _split_user(data["user"])
        # The tokens would not be those of the whole: a space goes with the word behind it.
        if before[-1:].isspace() and before[-1] not in "\r\n":
            raise ValidationError("must not have a space before {text}", "user")

    @validates_schema
    def _check_kind(self, data: dict[str, Any], **_: Any) -> None:
        is_label = data["kind"] == "label"
        if data["cache"] != ("none" if is_label else "session"):
            raise ValidationError(f"doesn't go with kind {data['kind']}", "cache")
        foreign = {"sampling"} if is_label else {"labels", "examples", "content_free"}
        for key in sorted(foreign & data.keys()):
            raise ValidationError(f"doesn't go with kind {data['kind']}", key)
        labels = data.get("labels", [])
        if is_label and (len(labels) < 2 or len(set(labels)) < len(labels)):
            raise ValidationError("a label task needs two different labels or more", "labels")
        for example in data.get("examples", []):
            if example.label not in labels:
                raise ValidationError(f"{example.label!r} is none of the labels", "examples")

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> Prompt:
        before, after = _split_user(data.pop("user"))
        for key in ("labels", "examples", "content_free"):
            data[key] = tuple(data.get(key, ()))
        return Prompt(before=before, after=after, **data.pop("budget"), **data)


def load_prompts(folder: Path) -> dict[str, Prompt]:
    """Read every `*.yaml` and `*.yml` in `folder`; prompts by name.

    Raises:
        PromptError: a file or key that can't be used, a name that stands twice, or no file.
    """
    prompts: dict[str, Prompt] = {}
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        prompt = load_prompt(path)
        if prompt.name in prompts:
            raise PromptError(f"{path}: name: {prompt.name!r} is taken by another file")
        prompts[prompt.name] = prompt
    if not prompts:
        raise PromptError(f"{folder}: there is no prompt file (*.yaml)")
    return prompts


def load_prompt(path: Path) -> Prompt:
    """Read one file; raise `PromptError` naming it and the key."""
    try:
        raw = yaml.load(path.read_text("utf-8"), _StrictLoader)  # a SafeLoader
        prompt: Prompt = _PromptSchema().load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise PromptError(f"{path}: {error}") from None
    except ValidationError as error:
        lines = [f"{path}: {key}: {' '.join(why)}" for key, why in field_errors(error).items()]
        raise PromptError("\n".join(lines)) from None
    return replace(prompt, file=path)


def _split_user(user: str) -> tuple[str, str]:
    """The template's text before and after its one `{text}`."""
    try:
        pieces = list(string.Formatter().parse(user))
    except ValueError as error:
        raise ValidationError(str(error), "user") from None
    variables = [piece[1:] for piece in pieces if piece[1] is not None]
    if variables != [("text", "", None)]:
        raise ValidationError("must have {text} once, and no other variable or format", "user")
    at = next(index for index, piece in enumerate(pieces) if piece[1] is not None)
    literals = [literal for literal, *_ in pieces]
    return "".join(literals[: at + 1]), "".join(literals[at + 1 :])


class _StrictLoader(yaml.SafeLoader):
    """YAML lets a key stand twice and drops the first silently; that is an error here."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.YAMLError(f"{', '.join(sorted(twice))}: stands twice")
        return super().construct_mapping(node, deep)
