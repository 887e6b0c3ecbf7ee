"""The allocators that scripts/torch_check.py compares: PyTorch's own, its expandable segments, `enable`, `pool` (one MemPool over
our pool), and `renewed` (a new MemPool over it for each step, by
`gvmm.torch.use()`)."""

import contextlib

import torch

MIB = 1 << 20
OURS = ("enable", "pool", "renewed")


def use(mode, **options):
    """Chooses the allocator; gives a context in which it serves."""
    if mode in ("native", "expandable"):
        return contextlib.nullcontext()
    import gvmm.torch

    if mode == "enable":
        gvmm.torch.enable(**options)
        return contextlib.nullcontext()
    return gvmm.torch.use(gvmm.torch.mem_pool(**options))


@contextlib.contextmanager
def step(mode):
    """The context of one step, where that is another one than that of all steps."""
    if mode != "renewed":
        yield
        return
    import gvmm.torch

    with gvmm.torch.use():
        yield


def figures(mode):
    """Peaks in bytes: what was requested and what was reserved of the device."""
    stats = torch.cuda.memory_stats()
    out = {
        "requested": stats["requested_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
    }  # fmt: skip
    if mode in OURS:
        import gvmm.torch

        ours = gvmm.torch.memory_stats()
        out["lent"], out["driver_ms"] = ours["gvmm"]["lent_chunks"], ours["gvmm"]["driver_ns"] / 1e6
        out["reserved"] = ours["reserved_bytes"]["all"]["peak"]
    return out
