"""gvmm's allocator for PyTorch on Intel GPUs (`torch.xpu`, PyTorch 2.10 or later). It was never run on one: see docs/level_zero.md.

The recommended way keeps PyTorch's caching layer, with its statistics and its streams, and has memory from a pool of ours below it:

    pool = gvmm.xpu.mem_pool()
    with torch.xpu.use_mem_pool(pool):
        ...                                # allocations of this thread come from the pool

The other makes ours the allocator for everything, before anything has used the GPU:

    gvmm.xpu.enable()
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from . import _compile, _config
from ._lib import call, lib, path
from ._pools import Pools

__all__ = ["enable", "is_enabled", "mem_pool", "memory_stats", "snapshot"]

_lock = threading.Lock()
# What PyTorch calls must live as long as it may do so: until the process ends.
_kept: dict[str, Any] = {}
_pools = Pools("gvmm_xpu_pool", lambda: torch.xpu.device_count(), lambda device: torch.xpu.get_device_properties(device).total_memory)


def _say(streams: str, limit: int | None, history: int) -> None:
    """Puts settings where the library reads them at its first call."""
    wanted = {"GVMM_XPU_STREAMS": os.environ.get("GVMM_XPU_STREAMS", streams), **_config.limits(limit, history)}
    changed = {name: text for name, text in wanted.items() if os.environ.get(name) != text}
    if changed and "begun" in _kept:
        raise RuntimeError(f"too late for {', '.join(changed)}: the library reads its settings once, at the first call")
    os.environ.update(changed)
    _kept["begun"] = True


def mem_pool(*, limit: int | None = None, **options: Any) -> torch.xpu.MemPool:
    """A `torch.xpu.MemPool` whose memory comes from our pool: PyTorch's caching layer stays on top, knows which streams use what,
    and waits for all of them before it gives memory back. An allocation that fails is PyTorch's own `OutOfMemoryError`.

    `limit`: the most that is reserved of each device's memory, in bytes, for all pools of the process. `options` are `MemPool`'s.
    """
    if not hasattr(torch.xpu, "MemPool"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no torch.xpu.MemPool: use gvmm.xpu.enable(), or a newer one")
    with _lock:
        if is_enabled():
            raise RuntimeError("after gvmm.xpu.enable() all memory comes from our pools, and PyTorch has no MemPool beside that")
        _say("any", limit, 0)
        if "pool allocator" not in _kept:
            made = torch.xpu.memory.XPUPluggableAllocator(path(), "gvmm_xpu_alloc", "gvmm_xpu_free")
            _kept["pool allocator"] = made
        return torch.xpu.MemPool(_kept["pool allocator"].allocator(), **options)


def is_enabled() -> bool:
    """True once :func:`enable` has made ours the current allocator."""
    return "current" in _kept


def enable(*, limit: int | None = None, history: int = 0, allow_unchecked_out_of_memory: bool = False) -> None:
    """Makes ours the current allocator, for all memory of all devices. To be called before anything uses the GPU, once; again is
    allowed and does nothing.

    `limit` is as in :func:`mem_pool`. `history` keeps so many events of each stream for snapshots.

    Python cannot tell PyTorch's allocator for plugging in about streams, nor does PyTorch check what it gives; so a small C++ shim
    does both. It is compiled at the first call for each PyTorch and kept (`~/.cache/gvmm`); SYCL's headers, which come with
    PyTorch's own packages, and a C++ compiler are needed. Where that cannot be done, this raises, unless
    `allow_unchecked_out_of_memory` says that a fault is as good; then one stream of each device may allocate, and a second is
    an error.
    """
    with _lock:
        if is_enabled():
            return
        if torch.xpu.is_initialized():
            raise RuntimeError("the GPU is in use already: call gvmm.xpu.enable() before anything touches it")
        try:
            shim = ctypes.CDLL(_shim())
        except (RuntimeError, OSError) as error:
            if not allow_unchecked_out_of_memory:
                raise RuntimeError(
                    f"{error}. Without it PyTorch would use a NULL where memory runs out, and not say which streams use a block. "
                    "gvmm.xpu.mem_pool() needs no compiler; enable(allow_unchecked_out_of_memory=True) takes the risk, for one stream"
                ) from error
            shim = None
        _say("one" if shim is None else "any", limit, history)
        _install(shim)
        _patch()


def sycl_headers() -> Path | None:
    """The folder of SYCL's headers, or none: those that came with PyTorch's packages, or a toolkit's."""
    homes = [Path(sys.prefix), *list(Path(torch.__file__).resolve().parents)[4:5]]
    homes += [Path(os.environ[name]) for name in ("CMPLR_ROOT", "ONEAPI_ROOT") if os.environ.get(name)]
    return next((home / "include" for home in homes if (home / "include/sycl/sycl.hpp").exists()), None)


def _shim() -> str:
    headers = sycl_headers()
    if headers is None:
        raise RuntimeError("SYCL's headers (sycl/sycl.hpp) are not here: pip install intel-sycl-rt, or set CMPLR_ROOT")
    libraries = ["-ltorch_python", "-ltorch_xpu", "-lc10_xpu", "-lc10"]
    source = Path(__file__).with_name("_xpu_shim.cc")
    built, said = _compile._build(torch, source, ["-isystem", str(headers)], libraries)
    if built is None:
        raise RuntimeError(said)
    return built


def _address(name: str) -> int:
    return ctypes.cast(getattr(lib(), name), ctypes.c_void_p).value or 0


_SHIMMED = ("gvmm_xpu_alloc", "gvmm_xpu_free", "gvmm_xpu_record_stream", "gvmm_last_error_message", "gvmm_last_error_detail")


def _install(shim: ctypes.CDLL | None) -> None:
    if shim is not None:
        shim.gvmm_xpu_shim_install((ctypes.c_void_p * len(_SHIMMED))(*map(_address, _SHIMMED)))
        _kept["current"] = shim
        return
    allocator = torch.xpu.memory.XPUPluggableAllocator(path(), "gvmm_xpu_alloc", "gvmm_xpu_free")
    torch.xpu.memory.change_current_allocator(allocator)
    _kept["current"] = allocator


def _index(device: Any) -> int:
    return device if isinstance(device, int) else torch.xpu._utils._get_device_index(device, optional=True)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The figures of our pool of a device in the form of `torch.xpu.memory_stats_as_nested_dict`; under `"gvmm"` also chunks lent,
    waits and driver calls."""
    index = _index(device)
    return _pools.stats(index)


def snapshot(pool_id: tuple[int, int] | None = None) -> dict[str, Any]:
    """Our pools of all devices as the dictionary that PyTorch's memory viewer opens (pickle it into a file)."""
    return _pools.snapshot(pool_id, True)


def _set_fraction(fraction: float, device: int) -> None:
    pool = _pools.pool(device)
    if pool is None:
        warnings.warn("nothing is allocated on this device yet: use gvmm.xpu.enable(limit=...)", stacklevel=3)
    else:
        call("gvmm_pool_set_fraction", pool, fraction)


def _patch() -> None:
    """Puts ours in place of what raises for an allocator that is not PyTorch's own, where all of PyTorch's names for it meet."""
    replacements = {
        "_xpu_emptyCache": _pools.trim,
        "_xpu_memoryStats": memory_stats,
        "_xpu_memorySnapshot": lambda pool_id=None: snapshot(tuple(pool_id) if pool_id and any(pool_id) else None),
        "_xpu_resetPeakMemoryStats": _pools.reset_peaks,
        "_xpu_resetAccumulatedMemoryStats": _pools.reset_accumulated,
        "_xpu_setMemoryFraction": _set_fraction,
        "_xpu_getMemoryFraction": _pools.fraction,
        # torch.accelerator's.
        "_accelerator_getDeviceStats": memory_stats,
        "_accelerator_resetPeakStats": _pools.reset_peaks,
        "_accelerator_resetAccumulatedStats": _pools.reset_accumulated,
    }
    for name, replacement in replacements.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, replacement)
