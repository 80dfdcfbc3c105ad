"""Frozen settings, read once from `AIO_*` variables and a `.env` in the working directory."""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from environs import Env, EnvValidationError
from marshmallow.validate import OneOf, Range

DEFAULT_MODEL = "Qwen/Qwen1.5-0.5B-Chat"
PREFIX = "AIO_"
ENV_FILE = ".env"
EXIT_LOAD_FAILED = 4  # gunicorn's master stops on it instead of starting workers for ever


class SettingsError(Exception):
    """One or more variables can't be used; the message has a line for each."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose. A field `x` is read from the variable `AIO_X`."""

    model: str = ""  # hub id, folder or .gguf file; empty: DEFAULT_MODEL, or its stand-in
    model_dir: Path = Path("models")
    prompts_dir: Path = Path("prompts")
    precision: str = "auto"  # of the weights
    kv_precision: str = "fp32"
    threads: int = 0  # of torch; 0: as many as the cores this process may use
    host: str = "127.0.0.1"
    port: int = 8000
    context_tokens: int = 2048  # of a prompt, history included; the answer comes on top
    max_text_tokens: int = 1024
    session_ttl_s: int = 600
    max_sessions: int = 10_000
    kv_budget_mb: int = 1024
    max_running: int = 16  # chats that decode side by side
    max_waiting: int = 24  # chats that wait for a place among them


def load_settings() -> Settings:
    """Read every variable; an empty one counts as unset.

    Raises:
        SettingsError: naming all bad and unknown ones at once.
    """
    env = Env(eager=False, prefix=PREFIX)
    env.read_env(ENV_FILE, recurse=False)
    defaults = Settings()
    readers: dict[str, Callable[..., Any]] = {
        "model": env.str,
        "model_dir": env.path,
        "prompts_dir": env.path,
        "precision": _with(env.str, OneOf(["auto", "int8", "bf16", "fp32"])),
        "kv_precision": _with(env.str, OneOf(["bf16", "fp32"])),
        "threads": _with(env.int, Range(0, 1024)),
        "host": env.str,
        "port": _with(env.int, Range(1, 65535)),
        "context_tokens": _with(env.int, Range(128, 131_072)),
        "max_text_tokens": _with(env.int, Range(1, 65_536)),
        "session_ttl_s": _with(env.int, Range(min=1)),
        "max_sessions": _with(env.int, Range(min=1)),
        "kv_budget_mb": _with(env.int, Range(min=1)),
        "max_running": _with(env.int, Range(1, 256)),
        "max_waiting": _with(env.int, Range(0, 4096)),
    }
    values = {
        name: read(name.upper()) if env.str(name.upper(), "").strip() else getattr(defaults, name)
        for name, read in readers.items()
    }
    problems = _unknown_variables()
    try:
        env.seal()
    except EnvValidationError as error:
        reasons: Any = error.error_messages  # a dict of lists
        problems += [f"{name}: {' '.join(why)}" for name, why in reasons.items()]
    if problems:
        raise SettingsError("\n".join(sorted(problems)))
    return Settings(**values)


def _with(read: Callable[..., Any], validate: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda name: read(name, validate=validate)


def _unknown_variables() -> list[str]:
    """A mistyped name would be ignored silently, which an operator finds out too late."""
    known = {PREFIX + field.name.upper() for field in fields(Settings)}
    return [
        f"{name}: no such setting"
        for name in sorted({*os.environ, *dotenv_values(ENV_FILE)})
        if name.startswith(PREFIX) and name not in known
    ]
