"""The service's own way up, with the model changed or noted before the engine gets it."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

from bench.contender import UnavailableError
from services import ready as ready_module
from services.engine.loading import load_model
from services.engine.model import Forward, Qwen2Model
from services.engine.precision import Precision
from services.prompts import load_prompts
from services.ready import Ready, make_ready
from services.settings import Settings
from services.weights import WeightsError


def make_ready_with(settings: Settings, change: Callable[[Qwen2Model], Forward]) -> Ready:
    """`make_ready` over what `change` makes of the model.

    Threads, budgets and prompts are thus the service's, whatever it does about them.

    Raises:
        UnavailableError: the model isn't there.
    """

    def load(folder: Path, precision: Precision, *args: int) -> Forward:
        return change(load_model(folder, precision, *args))

    with mock.patch.object(ready_module, "load_model", load):
        try:
            return make_ready(settings, load_prompts(settings.prompts_dir))
        except WeightsError as error:
            raise UnavailableError(str(error)) from None
