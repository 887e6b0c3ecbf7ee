"""gvmm's allocator for PyTorch on CUDA and ROCm.

Two ways. The recommended one keeps PyTorch's caching layer, with its statistics, and has memory from a pool of ours below it:

    pool = gvmm.torch.mem_pool()
    with gvmm.torch.use(pool):
        ...                                # allocations of all threads come from the pool

The other makes ours the allocator for everything, before anything has used the GPU:

    gvmm.torch.enable()

PyTorch's names for statistics, peaks, `empty_cache` and snapshots then tell of our pools.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from . import _compile, _config
from ._lib import call, lib, path
from ._pools import Pools

__all__ = ["enable", "is_enabled", "mem_pool", "memory_stats", "snapshot", "use"]

_lock = threading.Lock()
# What PyTorch calls must live as long as it may do so: until the process ends.
_kept: dict[str, Any] = {}
_pools = Pools("gvmm_torch_pool", torch.cuda.device_count, lambda device: torch.cuda.get_device_properties(device).total_memory)
_history = False


def _say(peers: str | Iterable[int] | None, limit: int | None, history: int, chunk: int | None) -> None:
    """Puts settings where the library reads them at its first call."""
    wanted = _config.limits(limit, history)
    if peers is not None:
        wanted["GVMM_POOL_PEERS"] = _config.readers(peers)
    if chunk is not None and "GVMM_POOL_CHUNK" not in os.environ:
        wanted["GVMM_POOL_CHUNK"] = str(chunk)
    changed = {name: text for name, text in wanted.items() if os.environ.get(name) != text}
    if changed and "begun" in _kept:
        raise RuntimeError(f"too late for {', '.join(changed)}: the library reads its settings once, at the first call")
    os.environ.update(changed)
    _kept["begun"] = True


def mem_pool(
    *, peers: str | Iterable[int] | None = None, limit: int | None = None, **options: Any
) -> torch.cuda.MemPool:
    """A `torch.cuda.MemPool` whose memory comes from our pool: PyTorch's caching layer stays on top and asks for 2 MiB, 20 MiB
    or more at a time. An allocation that fails is PyTorch's own `OutOfMemoryError`.

    `peers`: which devices may use the memory of others (`"all"`, `"none"` or numbers; by default none). `limit`: the most that is
    reserved of each device's memory, in bytes. Both hold for all pools of the process. `options` are `MemPool`'s own.

    `torch.cuda.use_mem_pool` directs the calling thread there; backward passes run on threads of their own, which :func:`use`
    directs there too.
    """
    with _lock:
        _say(peers, limit, 0, None)
        if "pool allocator" not in _kept:
            made = torch.cuda.memory.CUDAPluggableAllocator(path(), "gvmm_torch_alloc", "gvmm_torch_free")
            _kept["pool allocator"] = made
        return torch.cuda.MemPool(_kept["pool allocator"].allocator(), **options)


@contextlib.contextmanager
def use(
    pool: torch.cuda.MemPool | None = None, device: int | torch.device | None = None
) -> Iterator[torch.cuda.MemPool | None]:
    """While it lasts, allocations of every thread on a device come from the pool (`torch.cuda.use_mem_pool` directs the calling
    thread only).

    Without a pool, from a new :func:`mem_pool`; at the end PyTorch's layer gives ours back what it keeps and nobody uses, which it
    never does for a pool that goes on. Once around each step this may lower the peak, where more is kept than one step needs: the next
    step's blocks are cut anew. What is in use stays where it is. `torch.cuda.empty_cache` is called for that.
    """
    torch.cuda.init()
    index = torch.cuda._utils._get_device_index(device, optional=True)
    renewed = pool is None
    pool = mem_pool() if pool is None else pool
    torch._C._cuda_beginAllocateToPool(index, pool.id)
    try:
        # A caller who kept a new one would keep its memory.
        yield None if renewed else pool
    finally:
        torch._C._cuda_endAllocateToPool(index, pool.id)
        torch._C._cuda_releasePool(index, pool.id)
        if renewed:
            # The last reference of ours: what PyTorch still holds of the pool is for the blocks in use.
            del pool
            torch.cuda.empty_cache()


def is_enabled() -> bool:
    """True once :func:`enable` has made ours the current allocator."""
    return "current" in _kept


def enable(
    *,
    peers: str | Iterable[int] | None = None,
    limit: int | None = None,
    history: int = 0,
    allow_unchecked_out_of_memory: bool = False,
) -> None:
    """Makes ours the current allocator, for all memory of all devices. To be called before anything uses the GPU, once; again is
    allowed and does nothing.

    `peers` and `limit` are as in :func:`mem_pool`. `history` keeps so many events of each stream for snapshots.

    PyTorch does not check what its current allocator gives it, so a small C++ shim turns a failure into
    `torch.OutOfMemoryError`; it is compiled at the first call for each PyTorch and kept (`~/.cache/gvmm`). Where that cannot be
    done, this raises, unless `allow_unchecked_out_of_memory` says that a fault is as good.

    Keys of `PYTORCH_ALLOC_CONF` that mean something here are taken over, others are named in one warning.

    Not there with any current allocator but PyTorch's own: `MemPool`, and sharing CUDA tensors between processes.
    """
    global _history
    with _lock:
        if is_enabled():
            return
        if torch.cuda.is_initialized():
            raise RuntimeError("the GPU is in use already: call gvmm.torch.enable() before anything touches it")
        name, settings = _config.from_environment()
        # What may fail comes first, so that another try may have other settings.
        shim, full = _shim(allow_unchecked_out_of_memory)
        _say(peers, limit, history, settings.large_chunk)
        _history = history > 0
        _install(shim, full)
        if settings.fraction is not None:
            for device in range(torch.cuda.device_count()):
                lib().gvmm_torch_memory_fraction(settings.fraction, device)
        if settings.ignored:
            warnings.warn(f"gvmm does nothing about {', '.join(settings.ignored)} of {name}", stacklevel=2)
        _patch()


def _address(name: str) -> int:
    return ctypes.cast(getattr(lib(), name), ctypes.c_void_p).value or 0


# The setters of PyTorch's allocator for plugging in, and our functions, in the order that the shim has them in.
_HOOKS = {
    "set_init_fn": "gvmm_torch_init",
    "set_reset_fn": "gvmm_torch_reset",
    "set_memory_fraction_fn": "gvmm_torch_memory_fraction",
    "set_base_alloc_fn": "gvmm_torch_base_alloc",
    "set_record_stream_fn": "gvmm_torch_record_stream",
    "set_begin_allocate_to_pool": "gvmm_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "gvmm_torch_end_allocate_to_pool",
    "set_release_pool": "gvmm_torch_release_pool",
}


def _shim(unchecked: bool) -> tuple[ctypes.CDLL | None, bool]:
    """The compiled shim, and whether it is the full one; none where there is none and that is allowed."""
    try:
        file, full = _compile.shim(torch)
        return ctypes.CDLL(file), full
    except (RuntimeError, OSError) as error:
        if not unchecked:
            raise RuntimeError(
                f"{error}. Without it PyTorch would use a NULL where memory runs out. gvmm.torch.mem_pool() needs no compiler; "
                "enable(allow_unchecked_out_of_memory=True) takes the risk"
            ) from error
        return None, False


def _install(shim: ctypes.CDLL | None, full: bool) -> None:
    """Makes ours the current allocator: by the full shim where it could be compiled, else by PyTorch's own class for this."""
    alloc = _address("gvmm_torch_alloc")
    if shim is not None:
        names = ("gvmm_torch_alloc", "gvmm_last_error_message", "gvmm_last_error_detail", "gvmm_torch_delete")
        shim.gvmm_shim_connect(*(ctypes.c_void_p(_address(name)) for name in names))
        alloc = ctypes.cast(shim.gvmm_shim_alloc, ctypes.c_void_p).value or 0
    if full:
        names = ("gvmm_torch_free", *_HOOKS.values())
        hooks = (ctypes.c_void_p * len(names))(*map(_address, names))
        shim.gvmm_shim_install(hooks, ctypes.c_uint64(_peers()))
        _kept["current"] = shim
        return
    allocator = torch._C._cuda_customAllocator(alloc, _address("gvmm_torch_free"))
    for setter, name in _HOOKS.items():
        getattr(allocator, setter)(_address(name))
    torch._C._cuda_changeCurrentAllocator(allocator)
    _kept["current"] = (shim, allocator)
    if not _peers() and torch.cuda.device_count() > 1:
        warnings.warn(
            "CUDA's headers are not here, so that a missing peer is a fault and no error: use enable(peers=...) where one GPU "
            "reads another's tensors",
            stacklevel=3,
        )


def _peers() -> int:
    """A bit for each device that may use the others' memory."""
    return _config.mask(os.environ.get("GVMM_POOL_PEERS", "none")) or 0


def memory_stats(device: int | torch.device | None = None) -> dict[str, Any]:
    """The figures of our pool of a device in the form of `torch.cuda.memory_stats_as_nested_dict`; under `"gvmm"` also chunks lent,
    waits and driver calls. In a process that uses :func:`mem_pool`, PyTorch's own functions tell of its layer, and this of ours."""
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return _pools.stats(index)


def snapshot(pool_id: tuple[int, int] | None = None, *, traces: bool = True) -> dict[str, Any]:
    """Our pools of all devices as the dictionary that PyTorch's memory viewer opens (pickle it into a file). Events are there where
    `enable(history=...)` or GVMM_POOL_HISTORY asked for them; in place of a time they have their number."""
    return _pools.snapshot(pool_id, traces)


def _set_fraction(fraction: float, device: int) -> None:
    pool = _pools.pool(device)
    if pool is not None:
        call("gvmm_pool_set_fraction", pool, fraction)
    elif 0 < fraction <= 1:
        lib().gvmm_torch_memory_fraction(fraction, device)
    else:
        raise ValueError(f"a fraction is above 0 and at most 1, not {fraction}")


def _snapshot_for_torch(which: tuple[int, ...] | None = None) -> dict[str, Any]:
    pool_id = (which[0], which[1]) if which and tuple(which[:2]) != (0, 0) else None
    return snapshot(pool_id, traces=which is None or len(which) < 3 or bool(which[2]))


def _record_history(enabled: Any = "all", *_: Any, **__: Any) -> None:
    if enabled is not None and not _history:
        warnings.warn("events are kept from the start or not at all: gvmm.torch.enable(history=100000)", stacklevel=3)


def _patch() -> None:
    """Puts ours in place of what raises for an allocator that is not PyTorch's own, where all of PyTorch's names for it meet."""
    replacements = {
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": _pools.reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": _pools.reset_accumulated,
        "_cuda_memorySnapshot": _snapshot_for_torch,
        "_cuda_setMemoryFraction": _set_fraction,
        "_cuda_getMemoryFraction": _pools.fraction,
        "_cuda_record_memory_history": _record_history,
        "_cuda_record_memory_history_legacy": _record_history,
        # torch.accelerator's.
        "_accelerator_getDeviceStats": memory_stats,
        "_accelerator_resetPeakStats": _pools.reset_peaks,
        "_accelerator_resetAccumulatedStats": _pools.reset_accumulated,
    }
    for name, replacement in replacements.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, replacement)
