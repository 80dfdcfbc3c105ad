"""What precision weights are kept in, and which one suits the processor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from services.engine.linear import Embedding, FloatLinear, Int8Embedding, Int8Linear, Linear

_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class TokenTable(Protocol):
    """Token ids `[num_rows]` -> `[num_rows, hidden]` in fp32."""

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Precision:
    """Makes a model's products and embedding: "int8", "bf16" or "fp32", and why this one."""

    name: str
    reason: str = ""
    has_vnni: bool = True  # else int8 activations have 7 bits, which can't saturate

    def stored(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight as embedding and tied head may share it; int8 has a form for each."""
        return weight.to(_DTYPES[self.name]) if self.name in _DTYPES else weight

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """A product with `weight` `[out_features, in_features]`."""
        if self.name == "int8":
            return Int8Linear(weight, bias, has_vnni=self.has_vnni)
        return FloatLinear(self.stored(weight), bias)

    def embedding(self, weight: torch.Tensor) -> TokenTable:
        """A lookup in `weight` `[vocab_size, hidden]`."""
        return Int8Embedding(weight) if self.name == "int8" else Embedding(self.stored(weight))


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's feature flags; empty where the system doesn't tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())


def choose_precision(asked: str, flags: frozenset[str]) -> Precision:
    """`auto`: int8 where the processor has VNNI, else bf16 where it multiplies that, else fp32."""
    has_vnni = "avx512_vnni" in flags
    if asked != "auto":
        return Precision(asked, "asked for by AIO_PRECISION", has_vnni)
    if has_vnni:
        return Precision("int8", "the processor has avx512_vnni", has_vnni)
    native = sorted(flags & {"avx512_bf16", "amx_bf16"})
    if native:
        return Precision("bf16", f"the processor has {native[0]}, but no avx512_vnni", has_vnni)
    return Precision("fp32", "the processor has neither avx512_vnni nor bf16 products", has_vnni)
