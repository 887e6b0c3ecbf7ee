"""The pools that PyTorch's hooks allocate from, one a device, in the forms that PyTorch asks for."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from typing import Any

from . import _picture
from ._lib import WRONG_STATE, Error, PoolStats, call


def _text(pool: ctypes.c_void_p) -> str:
    """A pool's own snapshot. It may grow between the question for its size and the answer."""
    needed = ctypes.c_size_t(1 << 16)
    while True:
        text = ctypes.create_string_buffer(needed.value + 4096)
        call("gvmm_pool_snapshot", pool, text, len(text), ctypes.byref(needed))
        if needed.value <= len(text):
            return text.value.decode()


class Pools:
    """All of them. `function` gives a device's pool, `count` the number of devices, `total` the bytes of one."""

    def __init__(self, function: str, count: Callable[[], int], total: Callable[[int], int]):
        self._function, self._count, self._total = function, count, total
        self._handles: dict[int, ctypes.c_void_p] = {}
        # Where the sums were reset: what had been counted by then.
        self._bases: dict[int, dict[Any, Any]] = {}

    def pool(self, device: int) -> ctypes.c_void_p | None:
        """A handle of the pool of a device, or none where nothing was allocated there yet."""
        if device not in self._handles:
            handle = ctypes.c_void_p()
            try:
                call(self._function, device, ctypes.byref(handle))
            except Error as error:
                if error.status == WRONG_STATE:
                    return None
                raise
            self._handles[device] = handle
        return self._handles[device]

    def all(self) -> list[ctypes.c_void_p]:
        """Those that are there."""
        return [pool for device in range(self._count()) if (pool := self.pool(device)) is not None]

    def query(self, device: int) -> PoolStats:
        """A device's figures, all 0 where there is no pool yet."""
        stats = PoolStats(struct_size=ctypes.sizeof(PoolStats))
        pool = self.pool(device)
        if pool is not None:
            call("gvmm_pool_query", pool, ctypes.byref(stats))
        return stats

    def stats(self, device: int) -> dict[str, Any]:
        """The same in PyTorch's form, sums from where they were reset."""
        return _picture.memory_stats(self.query(device), self._bases.get(device))

    def snapshot(self, pool_id: tuple[int, int] | None, traces: bool) -> dict[str, Any]:
        """What PyTorch's memory viewer opens."""
        return _picture.snapshot([json.loads(_text(pool)) for pool in self.all()], self._count(), pool_id, traces)

    def trim(self) -> None:
        """Gives back what no block is in."""
        given = ctypes.c_uint64()
        for pool in self.all():
            call("gvmm_pool_trim", pool, ctypes.byref(given))

    def fraction(self, device: int) -> float:
        """The limit as a part of the device's memory, 1 where there is none."""
        limit = self.query(device).limit_bytes
        return min(limit / self._total(device), 1.0) if limit else 1.0

    def reset_peaks(self, device: int) -> None:
        """Peaks begin at what is now."""
        pool = self.pool(device)
        if pool is not None:
            call("gvmm_pool_reset_peaks", pool)

    def reset_accumulated(self, device: int) -> None:
        """Sums begin at 0."""
        stats = self.query(device)
        counts = {"forced_trims": stats.forced_trims, "out_of_memory": stats.out_of_memory}
        self._bases[device] = {**_picture.totals(stats), **counts}
