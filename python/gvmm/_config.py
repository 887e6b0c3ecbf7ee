"""What `PYTORCH_ALLOC_CONF` says, as far as it is for an allocator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

# PyTorch reads these in this order; of those set, the first counts.
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")

# Not this allocator's affair: the host's pinned memory, which stays PyTorch's own.
_ELSEWHERE = ("pinned_",)
# What this allocator does anyway: no lock is held while the driver is called.
_ALWAYS = ("release_lock_on_cudamalloc", "release_lock_on_hipmalloc")


@dataclass
class Settings:
    """What is taken over, and what is not."""

    fraction: float | None = None
    """`per_process_memory_fraction`: the part of each device's memory that may be used."""
    large_chunk: int | None = None
    """`large_segment_size_mb`, in bytes: how much memory is added at once for large requests."""
    ignored: list[str] = field(default_factory=list)
    """Keys that change nothing here, as they were written."""


def split(text: str) -> dict[str, str]:
    """The keys and values of `key:value,key:value`; a value in brackets may have commas and colons of its own."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    pairs = (part.partition(":") for part in parts if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def parse(text: str) -> Settings:
    """Decides each key. `expandable_segments:True` is how this allocator is made; so is what spares memory by splitting less
    or collecting more (`max_split_size_mb`, `garbage_collection_threshold`, `roundup_power2_divisions`): lending does it
    here, and those are named among the ignored."""
    settings = Settings()
    for key, value in split(text).items():
        if key.startswith(_ELSEWHERE) or key in _ALWAYS or (key, value) in _AGREED:
            continue
        if key == "per_process_memory_fraction" and _number(value) is not None and 0 < _number(value) <= 1:
            settings.fraction = _number(value)
        elif key == "large_segment_size_mb" and value.isdigit() and int(value) >= 2:
            # Chunks are multiples of 2 MiB.
            settings.large_chunk = int(value) // 2 * 2 << 20
        else:
            settings.ignored.append(f"{key}:{value}")
    return settings


_AGREED = (("expandable_segments", "True"), ("backend", "native"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def from_environment() -> tuple[str, Settings]:
    """The variable that counts and what it says."""
    name = next((name for name in VARIABLES if os.environ.get(name)), VARIABLES[0])
    return name, parse(os.environ.get(name, ""))
