import pytest

from services.settings import load_settings
from services.weights import check_files, find_model


@pytest.mark.model
def test_the_fetched_model_is_found_and_whole() -> None:
    config = check_files(find_model(load_settings()))
    assert config.vocab_size == 151_936  # of every Qwen1.5 and Qwen2.5 of this size
