"""Figures and snapshots in PyTorch's forms."""

from __future__ import annotations

from typing import Any

from ._lib import COUNTS, Bytes, Figure, PoolStats

Stats = dict[str, Any]

_FIGURES = {
    "allocation": "blocks",
    "active": "active_blocks",
    "segment": "chunks",
    "allocated_bytes": "allocated_bytes",
    "reserved_bytes": "reserved_bytes",
    "active_bytes": "active_bytes",
    "requested_bytes": "requested_bytes",
}


def _figure(figure: Figure, base: tuple[int, int]) -> Stats:
    return {
        "current": figure.current,
        "peak": figure.peak,
        "allocated": figure.total - base[0],
        "freed": figure.total - figure.current - base[1],
    }


def _unused(part: Bytes) -> Stats:
    """Reserved and not active: what PyTorch calls inactive and split off."""
    now = max(part.reserved_bytes.current - part.active_bytes.current, 0)
    return {"current": now, "peak": now, "allocated": 0, "freed": 0}


def _parts(stats: PoolStats) -> dict[str, Bytes]:
    return {"all": stats.all, "small_pool": stats.small, "large_pool": stats.large}


def totals(stats: PoolStats) -> dict[tuple[str, str], tuple[int, int]]:
    """What was ever added to and taken from each figure, to count from: `reset_accumulated_memory_stats` keeps it."""
    return {
        (name, part): (getattr(of, field).total, getattr(of, field).total - getattr(of, field).current)
        for name, field in _FIGURES.items()
        for part, of in _parts(stats).items()
    }


def memory_stats(stats: PoolStats, base: dict[Any, Any] | None = None) -> Stats:
    """The nested dictionary of `torch.cuda.memory_stats_as_nested_dict`, and under `gvmm` what only this allocator has."""
    base = base or {}
    none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    parts = _parts(stats)
    out: Stats = {
        name: {part: _figure(getattr(of, field), base.get((name, part), (0, 0))) for part, of in parts.items()}
        for name, field in _FIGURES.items()
    }
    out["inactive_split_bytes"] = {part: _unused(of) for part, of in parts.items()}
    out["inactive_split"] = {part: dict(none) for part in parts}
    out["oversize_allocations"], out["oversize_segments"] = dict(none), dict(none)
    out["num_alloc_retries"] = stats.forced_trims - base.get("forced_trims", 0)
    out["num_ooms"] = stats.out_of_memory - base.get("out_of_memory", 0)
    out["num_sync_all_streams"] = stats.device_syncs
    out["num_device_alloc"] = stats.create_calls
    out["num_device_free"] = stats.release_calls
    out["max_split_size"] = -1
    out["gvmm"] = {name: getattr(stats, name) for name in COUNTS}
    out["gvmm"]["address_space"] = stats.address_space.current
    return out


def segment(device: int, ours: Stats) -> Stats:
    """One segment of `torch.cuda.memory_snapshot`."""
    blocks = ours["blocks"]
    size = {
        state: sum(block["size"] for block in blocks if block["state"] == state)
        for state in ("active_allocated", "active_pending_free")
    }
    return {
        "device": device,
        "address": ours["address"],
        "total_size": ours["size"],
        "allocated_size": size["active_allocated"],
        "active_size": sum(size.values()),
        "requested_size": sum(block["requested_size"] for block in blocks if block["state"] == "active_allocated"),
        "stream": ours["stream"] or 0,
        "segment_type": "large" if ours["large"] else "small",
        "segment_pool_id": tuple(ours["pool"]),
        "is_expandable": True,
        "frames": [],
        "blocks": [
            {
                "address": block["address"],
                "size": block["size"],
                "requested_size": block["requested_size"],
                "state": block["state"],
                "frames": [],
            }
            for block in blocks
        ],
    }


def trace(event: Stats) -> Stats:
    """One entry of a device's trace. Events have an order and no clock: their number stands for the time."""
    entry = {
        "action": event["action"],
        "addr": event["address"],
        "size": event["size"],
        "stream": event["stream"] or 0,
        "time_us": event["number"],
        "compile_context": "",
        "user_metadata": "",
        "pool_id": tuple(event["pool"]),
        "frames": [],
    }
    if event["action"] == "oom":
        entry["device_free"] = 0
    return entry


def traces_of(events: list[Stats]) -> list[Stats]:
    """A device's trace. The viewer takes a completed free that nobody requested for one that other streams held up, so that the
    request of one that was done at once is named, too."""
    out, requested = [], set()
    for event in events:
        if event["action"] == "free_requested":
            requested.add(event["address"])
        elif event["action"] == "free_completed":
            if event["address"] not in requested:
                out.append(trace({**event, "action": "free_requested"}))
            requested.discard(event["address"])
        out.append(trace(event))
    return out


def snapshot(pools: list[Stats], devices: int, pool_id: tuple[int, int] | None = None, traces: bool = True) -> Stats:
    """The dictionary that PyTorch's memory viewer opens, of our pools' own snapshots; with `pool_id`, of one pool for graphs."""
    wanted = lambda item: pool_id is None or tuple(item["pool"]) == pool_id  # noqa: E731
    out: Stats = {
        "segments": [],
        "device_traces": [[] for _ in range(max([devices, *(pool["device"] + 1 for pool in pools)]))],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": True, "backend": "gvmm"},
        "external_annotations": [],
    }
    for pool in pools:
        out["segments"] += [segment(pool["device"], item) for item in pool["segments"] if wanted(item)]
        if traces:
            out["device_traces"][pool["device"]] = traces_of([event for event in pool["events"] if wanted(event)])
    return out
