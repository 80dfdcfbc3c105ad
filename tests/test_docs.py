"""What an operator or caller looks up has to stand in the README."""

from dataclasses import fields
from pathlib import Path

import pytest
from flask import Flask

from services.settings import PREFIX, Settings

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", [PREFIX + field.name.upper() for field in fields(Settings)])
def test_setting_stands_in_the_readme(name: str) -> None:
    assert f"`{name}`" in README


def test_every_route_stands_in_the_readme(app: Flask) -> None:
    missing = []
    for rule in app.url_map.iter_rules():
        if rule.endpoint == "static":
            continue
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            path = rule.rule.replace("<session_id>", "ID")
            if f"`{method} {path}`" not in README:
                missing.append(f"{method} {path}")
    assert missing == []
