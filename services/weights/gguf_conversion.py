"""From a GGUF file to config, tokenizer, chat template and safetensors, with transformers."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from services.weights.model_files import WeightsError

_BF16_BYTES = 2
_TOKENIZER_BYTES = 50_000_000  # amply: Qwen's is 11 MB


@dataclass(frozen=True, slots=True)
class GgufSummary:
    architecture: str
    num_weights: int

    @property
    def converted_bytes(self) -> int:
        return self.num_weights * _BF16_BYTES + _TOKENIZER_BYTES


def read_summary(gguf: Path) -> GgufSummary:
    """What the file holds, without unpacking it (a few seconds, for the vocabulary is read).

    Raises:
        WeightsError: it is no GGUF file, or damaged.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
        return GgufSummary(
            architecture=str(reader.fields["general.architecture"].contents()),
            num_weights=sum(int(tensor.n_elements) for tensor in reader.tensors),
        )
    except (ValueError, IndexError, KeyError) as error:
        raise WeightsError(f"{gguf} is no GGUF file, or is damaged: {error}.") from None


def convert(gguf: Path, folder: Path) -> None:
    """Unpack `gguf` into `folder`, which is made anew.

    bf16, because a quantised file has no more precision than that to give, and fp32 would take
    twice the disk.

    Raises:
        WeightsError: transformers can't read it.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _unpack(gguf, folder)
    except BaseException:  # Ctrl-C too: half of a conversion is of no use to the next run
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _let_others_read(folder)


def _unpack(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with _bars_alone():
        try:
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                # Unpacked on loading; a model that keeps its GGUF blocks refuses to be saved.
                quantization_config=GgufConfig(dequantize=True),
            )
        except (ValueError, IndexError, KeyError, RuntimeError) as error:
            raise WeightsError(f"{gguf} can't be converted: {error}") from None
        # The name in the file's metadata, which transformers mistakes for a path.
        vars(model.config).pop("_model_name_or_path", None)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _bars_alone() -> Iterator[None]:
    """Keep transformers' progress bars, drop its remarks on how a GGUF is best loaded."""
    from transformers.utils import logging as noise

    before = noise.get_verbosity()
    noise.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        noise.set_verbosity(before)


def _let_others_read(folder: Path) -> None:
    """Safetensors are saved for their owner alone; the service may run as somebody else."""
    mode = (folder / "config.json").stat().st_mode
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)
