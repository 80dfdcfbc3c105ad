"""A request's tasks -> which prompts run, label tasks first. Pure: never imports torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.errors import InvalidFieldsError, NotFoundError
from services.prompts import Prompt

DEFAULT_TASKS = ("sentiment", "chat")


@dataclass(frozen=True, slots=True)
class Route:
    """What a request runs: label tasks in the order asked for, then at most one chat."""

    labels: tuple[str, ...]
    chat: str | None


def route(tasks: Sequence[str], prompts: Mapping[str, Prompt]) -> Route:
    """Sort the tasks; one that is named twice runs once.

    Raises:
        NotFoundError: a task without a prompt file.
        InvalidFieldsError: more than one chat task.
    """
    names = list(dict.fromkeys(tasks))
    unknown = [name for name in names if name not in prompts]
    if unknown:
        known = ", ".join(sorted(prompts))
        raise NotFoundError(
            f"no such task: {', '.join(unknown)}", errors={"tasks": [f"known are {known}"]}
        )
    chats = [name for name in names if prompts[name].kind == "chat"]
    if len(chats) > 1:
        raise InvalidFieldsError(
            "one request, one reply", errors={"tasks": [f"more than one chat: {', '.join(chats)}"]}
        )
    labels = tuple(name for name in names if prompts[name].kind == "label")
    return Route(labels, chats[0] if chats else None)
