"""A request's fields -> one frozen request object."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import Schema, ValidationError, fields, post_load, pre_load, validate

from services.router import DEFAULT_TASKS

MAX_NEW_TOKENS = 512
SESSION_ID = r"[A-Za-z0-9_-]{1,64}\Z"
# Control characters are dropped, but for those that are white space: words stay apart.
_CONTROLS = {
    code: "\n" if chr(code).isspace() else None
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\t\n\r"
}
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
# Drawn as nothing although they are letters or marks: fillers, blank Braille, joiners, selectors.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(code) for code in (*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}


@dataclass(frozen=True, slots=True)
class AnalyzeRequest:
    """What `POST /analyze` asks for; None where the prompt file's default is meant."""

    text: str
    session_id: str | None = None
    replace_last: bool = False
    tasks: tuple[str, ...] = DEFAULT_TASKS
    stream: bool | None = None
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


class _Text(fields.String):
    """A text with something in it: control characters dropped, outer white space too."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, *args, **kwargs).translate(_CONTROLS).strip()
        if all(unicodedata.category(c) in _INVISIBLE_CATEGORIES or c in _BLANKS for c in text):
            raise ValidationError("has nothing in it")
        return text


class _Integer(fields.Integer):
    """A JSON integer: no text, no boolean (which Python counts as one)."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not int:
            raise self.make_error("invalid")
        return super()._deserialize(value, *args, **kwargs)


class _Number(fields.Float):
    """A JSON number: no text, no boolean."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if type(value) not in (int, float):
            raise self.make_error("invalid", input=value)
        return super()._deserialize(value, *args, **kwargs)


class _Boolean(fields.Boolean):
    """A JSON boolean: no text, no number."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        if type(value) is not bool:
            raise self.make_error("invalid", input=value)
        return value


class AnalyzeSchema(Schema):
    """The fields of `POST /analyze`; an optional one that is null counts as absent."""

    text = _Text(required=True)
    session_id = fields.String(
        # The message is a format string: braces twice.
        validate=validate.Regexp(SESSION_ID, error="must match [A-Za-z0-9_-]{{1,64}}")
    )
    replace_last = _Boolean()
    tasks = fields.List(fields.String(), validate=validate.Length(1, 16))
    stream = _Boolean()
    max_new_tokens = _Integer(validate=validate.Range(1, MAX_NEW_TOKENS))
    temperature = _Number(validate=validate.Range(0, 2))
    top_p = _Number(validate=validate.Range(0, 1, min_inclusive=False))
    seed = _Integer(validate=validate.Range(0, 2**63 - 1))

    @pre_load
    def _drop_nulls(self, data: Any, **_: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        optional = self.fields.keys() - {"text"}
        return {k: v for k, v in data.items() if v is not None or k not in optional}

    @post_load
    def _make(self, data: dict[str, Any], **_: Any) -> AnalyzeRequest:
        if data.get("replace_last") and "session_id" not in data:
            raise ValidationError("needs a session_id", "replace_last")
        if "tasks" in data:
            data["tasks"] = tuple(data["tasks"])
        return AnalyzeRequest(**data)
