"""The router: which prompts a request runs, and in what order."""

import subprocess
import sys
from pathlib import Path

import pytest

from services.errors import InvalidFieldsError, NotFoundError
from services.prompts import Prompt
from services.router import DEFAULT_TASKS, Route, route

PROMPTS = {
    name: Prompt(name, kind, "", "", "", "none", 2)
    for name, kind in [
        ("chat", "chat"),
        ("sentiment", "label"),
        ("urgency", "label"),
        ("tutor", "chat"),
    ]
}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (DEFAULT_TASKS, Route(("sentiment",), "chat")),
        (["chat", "sentiment"], Route(("sentiment",), "chat")),
        (["chat", "urgency", "sentiment"], Route(("urgency", "sentiment"), "chat")),
        (["sentiment"], Route(("sentiment",), None)),
        (["tutor"], Route((), "tutor")),
        (["sentiment", "chat", "chat", "sentiment"], Route(("sentiment",), "chat")),
    ],
)
def test_labels_come_first(tasks: list[str], expected: Route) -> None:
    assert route(tasks, PROMPTS) == expected


def test_unknown_tasks_are_all_named() -> None:
    with pytest.raises(NotFoundError, match="poem, mood") as caught:
        route(["poem", "chat", "mood"], PROMPTS)
    assert "sentiment" in caught.value.errors["tasks"][0]


def test_two_chats_are_refused() -> None:
    with pytest.raises(InvalidFieldsError) as caught:
        route(["chat", "tutor"], PROMPTS)
    assert caught.value.errors == {"tasks": ["more than one chat: chat, tutor"]}


def test_router_imports_no_torch() -> None:
    code = "import sys, services.router; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
