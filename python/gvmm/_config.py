"""What `PYTORCH_ALLOC_CONF` says, as far as it is for an allocator."""

from __future__ import annotations

import os
from collections.abc import Iterable
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


# The numbers that a device can have.
DEVICES = range(64)


def limits(limit: int | None, history: int) -> dict[str, str]:
    """The library's variables for these, which raises `ValueError` where it would go on without them."""
    wanted = {}
    if limit is not None:
        if int(limit) <= 0:
            raise ValueError(f"a limit is a number of bytes above 0, not {limit!r}")
        wanted["GVMM_POOL_LIMIT"] = str(int(limit))
    if int(history) < 0:
        raise ValueError(f"history is a number of events, not {history!r}")
    if history:
        wanted["GVMM_POOL_HISTORY"] = str(int(history))
    return wanted


def readers(peers: str | Iterable[int]) -> str:
    """GVMM_POOL_PEERS for the devices that may use the memory of others; raises `ValueError` for what is none."""
    text = peers if isinstance(peers, str) else ",".join(str(int(peer)) for peer in peers) or "none"
    if text not in ("all", "none") and mask(text) is None:
        raise ValueError(f'peers are "all", "none" or numbers of devices, not {peers!r}')
    return text


def mask(text: str) -> int | None:
    """A bit for each device that GVMM_POOL_PEERS names, or none where it is wrong: the library then takes no peers."""
    if text in ("all", "none"):
        return (1 << 64) - 1 if text == "all" else 0
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdecimal() and int(number) in DEVICES for number in numbers):
        return None
    return sum(1 << device for device in {int(number) for number in numbers})


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def from_environment() -> tuple[str, Settings]:
    """The variable that counts and what it says."""
    name = next((name for name in VARIABLES if os.environ.get(name)), VARIABLES[0])
    return name, parse(os.environ.get(name, ""))
