"""A form's fields, with values as JSON would have them."""

import io
import math
import re
from collections.abc import Mapping
from typing import IO, Any
from urllib.parse import parse_qs

from marshmallow import fields
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.formparser import FormDataParser

from services.errors import MalformedError
from services.schemas import AnalyzeSchema
from services.strict_json import MAX_INTEGER_DIGITS

URLENCODED = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MAX_FORM_FIELDS = 64

_FIELDS = AnalyzeSchema().fields
_BOOLEANS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_INTEGER = re.compile(rf"[+-]?\d{{1,{MAX_INTEGER_DIGITS}}}", re.ASCII)


def parse_form(body: bytes, mimetype: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a form whose content type has these `options` (`boundary`).

    A value that can't be read stays text, which the schema then refuses by name.

    Raises:
        MalformedError: the body isn't a form in UTF-8, has too many fields or a file, a field
            other than `tasks` twice, or a number that isn't finite.
    """
    try:
        body.decode("utf-8")
        form = _urlencoded(body) if mimetype == URLENCODED else _multipart(body, options)
    except UnicodeDecodeError:
        raise MalformedError("the form is not UTF-8") from None
    return {name: _value(name, values) for name, values in form.items()}


def _urlencoded(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(
            body.decode("utf-8"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except UnicodeDecodeError:  # a ValueError, too
        raise
    except ValueError:
        raise _too_many() from None


def _multipart(body: bytes, options: Mapping[str, str]) -> dict[str, list[str]]:
    parser = FormDataParser(_refuse_file, silent=False, max_form_parts=MAX_FORM_FIELDS)
    try:
        _, form, _ = parser.parse(io.BytesIO(body), MULTIPART, len(body), dict(options))
    except RequestEntityTooLarge:
        raise _too_many() from None
    except ValueError:
        raise MalformedError("the form's parts can't be told apart") from None
    return dict(form.lists())


def _refuse_file(*_: Any, **__: Any) -> IO[bytes]:
    raise MalformedError("files are not taken")


def _too_many() -> MalformedError:
    return MalformedError(f"the form has more than {MAX_FORM_FIELDS} fields")


def _value(name: str, values: list[str]) -> Any:
    """An empty optional field counts as absent, as null does in JSON."""
    if name == "tasks":
        return [value for value in values if value] or None
    if len(values) > 1:
        raise MalformedError("the form is ambiguous", errors={name: ["stands more than once"]})
    value = values[0]
    if value == "" and name != "text":
        return None
    field = _FIELDS.get(name)
    if isinstance(field, fields.Boolean):
        return _BOOLEANS.get(value.strip().lower(), value)
    if isinstance(field, fields.Integer):
        return int(value) if _INTEGER.fullmatch(value.strip()) else value
    if isinstance(field, fields.Float):
        return _number(name, value)
    return value


def _number(name: str, value: str) -> float | str:
    if "_" in value:  # Python's own spelling, not a number of anyone else's
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        raise MalformedError("a number is not finite", errors={name: [f"{value} is no number"]})
    return number
