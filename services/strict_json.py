"""JSON read strictly: nothing is guessed, nothing is lost."""

import json
import math
import re
from typing import Any

from services.errors import MalformedError

MAX_DEPTH = 32  # a request has two levels
MAX_INTEGER_DIGITS = 32  # more than any field takes
# A string, closed or not, or a bracket. What begins a string always matches: no second attempt.
_BRACKETS = re.compile(r'"(?:[^"\\]+|\\.?)*+"?|([\[{])|[\]}]', re.DOTALL)


def parse_json(body: bytes) -> Any:
    """Strict JSON in UTF-8: keys once, numbers finite, no lone surrogates, not too deep.

    Raises:
        MalformedError: otherwise, saying what.
    """
    try:
        text = body.decode("utf-8-sig")
        _check_depth(text)
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate can't be encoded
    except UnicodeEncodeError:
        raise MalformedError("the JSON has a lone surrogate, which is no character") from None
    except UnicodeDecodeError:
        raise MalformedError("the body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedError(
            f"the JSON is broken at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    return value


def _check_depth(text: str) -> None:
    """Before parsing: how deep the parser can go depends on the stack that is left."""
    depth = 0
    for match in _BRACKETS.finditer(text):
        if match[1]:
            depth += 1
        elif match[0] in "]}":
            depth -= 1
        if depth > MAX_DEPTH:
            raise MalformedError(f"the JSON is nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise MalformedError("a key stands twice in one JSON object")
    return fields


def _refuse_constant(name: str) -> float:
    raise MalformedError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedError("a number is too large")
    return number


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise MalformedError("a number is too large")
    return int(digits)
