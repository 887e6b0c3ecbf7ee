"""The library: where it is, its functions by ctypes, and its failures as exceptions."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path


class Error(RuntimeError):
    """A call that failed: `status` is its `GVMM_ERROR_...` number, and the message names what to do."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


WRONG_STATE = 110


class DeviceDesc(ctypes.Structure):
    """`gvmm_device_desc`."""

    _fields_ = [("struct_size", c_size_t), ("driver", c_uint32), ("ordinal", c_uint32)]


class Figure(ctypes.Structure):
    """`gvmm_figure`: now, the most since the last reset, and all that was ever added."""

    _fields_ = [("current", c_uint64), ("peak", c_uint64), ("total", c_uint64)]


class Bytes(ctypes.Structure):
    """`gvmm_pool_bytes`."""

    _fields_ = [
        (name, Figure)
        for name in (
            "allocated_bytes",
            "requested_bytes",
            "active_bytes",
            "reserved_bytes",
            "blocks",
            "active_blocks",
            "chunks",
        )
    ]


COUNTS = (
    "spare_bytes limit_bytes lent_chunks stream_waits host_waits device_syncs forced_trims out_of_memory reserve_calls "
    "free_calls create_calls release_calls map_calls unmap_calls set_access_calls timeline_writes driver_ns"
).split()


class PoolStats(ctypes.Structure):
    """`gvmm_pool_stats`."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("all", Bytes),
        ("small", Bytes),
        ("large", Bytes),
        ("address_space", Figure),
        *((name, c_uint64) for name in COUNTS),
    ]


def path() -> str:
    """The library's file: the one that `GVMM_LIBRARY` names, else the one in this package, else this repository's build."""
    here = Path(__file__).resolve().parent
    named = os.environ.get("GVMM_LIBRARY")
    places = [Path(named)] if named else [here / "libgvmm.so.0", here.parents[1] / "target/release/libgvmm.so"]
    for place in places:
        if place.exists():
            return str(place)
    raise FileNotFoundError(f"libgvmm.so is not at {' or '.join(map(str, places))}: build it with `make library`")


_STATUS_CALLS = {
    "gvmm_last_error_message": [c_void_p, c_size_t, POINTER(c_size_t)],
    "gvmm_device_open": [POINTER(DeviceDesc), POINTER(c_void_p)],
    "gvmm_stream_create": [c_void_p, POINTER(c_void_p)],
    "gvmm_torch_pool": [c_int, POINTER(c_void_p)],
    "gvmm_xpu_pool": [c_int, POINTER(c_void_p)],
    "gvmm_pool_query": [c_void_p, POINTER(PoolStats)],
    "gvmm_pool_reset_peaks": [c_void_p],
    "gvmm_pool_trim": [c_void_p, POINTER(c_uint64)],
    "gvmm_pool_set_fraction": [c_void_p, c_double],
    "gvmm_pool_set_limit": [c_void_p, c_uint64],
    "gvmm_pool_snapshot": [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)],
}


@functools.lru_cache(maxsize=None)
def lib() -> ctypes.CDLL:
    """The library, loaded, with the types of the functions that this package calls."""
    loaded = ctypes.CDLL(path())
    for name, types in _STATUS_CALLS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = types, c_int32
    loaded.gvmm_version_string.restype = c_char_p
    loaded.gvmm_torch_alloc.argtypes, loaded.gvmm_torch_alloc.restype = [c_size_t, c_int, c_void_p], c_void_p
    loaded.gvmm_torch_free.argtypes, loaded.gvmm_torch_free.restype = [c_void_p, c_size_t, c_int, c_void_p], None
    loaded.gvmm_torch_memory_fraction.argtypes, loaded.gvmm_torch_memory_fraction.restype = [c_double, c_int], None
    return loaded


def last_error() -> str:
    """What the last failing call of this thread left."""
    text, needed = ctypes.create_string_buffer(1024), c_size_t()
    lib().gvmm_last_error_message(text, len(text), ctypes.byref(needed))
    return text.value.decode(errors="replace")


def call(name: str, *arguments) -> None:
    """Calls a function that answers a status, and raises where that is a failure."""
    status = getattr(lib(), name)(*arguments)
    if status != 0:
        raise Error(status, last_error())
