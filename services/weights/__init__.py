"""The model's files: found, checked, fetched.

Importing this is cheap, and `find_model` and `check_files` stay so: neither torch nor
transformers nor the hub's client is loaded before a fetch needs them.
"""

from services.weights.checks import check_files, read_config
from services.weights.fetch import fetch_model
from services.weights.find import find_model
from services.weights.model_files import ModelFiles, WeightsError, stand_in_warning

__all__ = [
    "ModelFiles",
    "WeightsError",
    "check_files",
    "fetch_model",
    "find_model",
    "read_config",
    "stand_in_warning",
]
