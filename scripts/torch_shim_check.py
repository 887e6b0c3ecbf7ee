#!/usr/bin/env python3
"""gvmm.torch beside a real PyTorch, without a GPU: the module compiles its C++ shim, makes ours PyTorch's current allocator, and
PyTorch's own C++ calls and Python names are tried with our library on its host driver.

    scripts/torch_shim_check.py       with the PyTorch (for CUDA) of this Python, and its packages of CUDA's headers

The library is GVMM_LIBRARY's, else target/release's. Ends with 77 where there is no such PyTorch.
"""

import ctypes
import os
import pickle
import subprocess
import sys
import tempfile
import types
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ.update(GVMM_DRIVER="host", GVMM_HOST_MEMORY="256M", GVMM_POOL_CHUNK="2M", GVMM_LOG="off")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,max_split_size_mb:128,new_key:1"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def stream(_lib):
    device, made = ctypes.c_void_p(), ctypes.c_void_p()
    desc = _lib.DeviceDesc(ctypes.sizeof(_lib.DeviceDesc), 4, 0)
    _lib.call("gvmm_device_open", ctypes.byref(desc), ctypes.byref(device))
    _lib.call("gvmm_stream_create", device, ctypes.byref(made))
    return made


def compile_calls(torch, compiler, headers, folder):
    """The calls of ffi_tests/torch_shim.cc, linked to PyTorch's libraries and to the library that this process has."""
    root, target = Path(torch.__file__).parent, folder / "calls.so"
    (folder / "libgvmm.so").symlink_to(os.environ["GVMM_LIBRARY"])
    command = [
        compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        "-I", str(ROOT / "include"), "-isystem", str(root / "include"), "-isystem", str(headers), str(ROOT / "ffi_tests/torch_shim.cc"),
        "-L", str(root / "lib"), "-lc10_cuda", "-lc10", "-L", str(folder), "-lgvmm", "-o", str(target),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(target))


def refusals(gvmm, _compile):
    """What is wrong is said, and changes nothing: other settings may follow."""
    found, _compile.compilers = _compile.compilers, list
    try:
        gvmm.torch.enable(limit=1 << 20)
        raise AssertionError("without a compiler")
    except RuntimeError as error:
        assert "no C++ compiler" in str(error) and "allow_unchecked_out_of_memory=True" in str(error)
    finally:
        _compile.compilers = found
    for wrong in ({"limit": 0}, {"peers": "some"}, {"history": -1}):
        try:
            gvmm.torch.enable(**wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    assert not gvmm.torch.is_enabled() and "GVMM_POOL_LIMIT" not in os.environ


def names(torch, gvmm, alloc, made):
    """PyTorch's names for statistics and snapshots, where a GPU is said to be there."""
    here = lambda *_, **__: 0  # noqa: E731
    for module, name, value in (
        (torch.cuda.memory, "is_initialized", lambda: True), (torch.cuda.memory, "_get_device_index", here),
        (torch.cuda.memory, "_lazy_init", lambda: None), (torch._C, "_accelerator_isAllocatorInitialized", lambda: True),
        (torch.accelerator.memory, "_get_device_index", here),
        (torch.cuda._utils, "_get_device_index", here), (torch.cuda, "device_count", lambda: 1),
        (gvmm.torch._pools, "_count", lambda: 1), (gvmm.torch._pools, "_total", lambda _: 256 << 20),
    ):  # fmt: skip
        setattr(module, name, value)
    address = alloc(5 << 20, 0, made)
    assert torch.cuda.memory_allocated() == torch.cuda.memory_stats()["active_bytes.all.current"] == 5 << 20
    assert torch.cuda.max_memory_allocated() >= 5 << 20 and torch.cuda.memory_reserved() >= 5 << 20
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    stats = torch.cuda.memory_stats()
    assert (stats["allocated_bytes.all.peak"], stats["allocated_bytes.all.allocated"]) == (5 << 20, 0)
    assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
    accelerator = torch.accelerator
    assert accelerator.memory_allocated(0) == 5 << 20 == accelerator.max_memory_allocated(0) <= accelerator.memory_reserved(0)
    accelerator.reset_peak_memory_stats(0)
    accelerator.reset_accumulated_memory_stats(0)
    snapshot = torch.cuda.memory_snapshot()
    assert [b["size"] for s in snapshot for b in s["blocks"] if b["state"] == "active_allocated"] == [5 << 20]
    from torch.cuda import _memory_viz

    whole = pickle.loads(pickle.dumps(gvmm.torch.snapshot()))
    assert _memory_viz.segsum(whole) and "5.0MiB" in _memory_viz.segsum(whole)
    assert "<script" in _memory_viz.trace_plot(whole) and "<script" in _memory_viz.segment_plot(whole)
    gvmm.lib().gvmm_torch_free(address, 0, 0, made)
    assert torch.cuda.memory_allocated() == 0


def pools(torch, gvmm):
    """One pool for a while stays; a new one is gone at the end, before the cache is emptied."""
    calls = []

    class Pool:
        id = (1, 2)

        def __init__(self, *_, **__):
            calls.append("made")

        def __del__(self):
            calls.append("gone")

    torch.cuda.MemPool, torch.cuda.init = Pool, lambda: None
    torch.cuda.memory.CUDAPluggableAllocator = lambda *_: types.SimpleNamespace(allocator=lambda: None)
    torch.cuda.empty_cache = lambda: calls.append("emptied")
    for name in ("beginAllocateToPool", "endAllocateToPool", "releasePool"):
        setattr(torch._C, "_cuda_" + name, lambda _, pool, name=name: calls.append(name))
    with gvmm.torch.use() as nothing:
        calls.append("step")
    ended = ["endAllocateToPool", "releasePool"]
    assert nothing is None and calls == ["made", "beginAllocateToPool", "step", *ended, "gone", "emptied"], calls
    calls.clear()
    pool = gvmm.torch.mem_pool()
    with gvmm.torch.use(pool) as same:
        pass
    assert same is pool and calls == ["made", "beginAllocateToPool", *ended], calls


def main():
    try:
        import torch
    except ImportError:
        skip("there is no PyTorch here")
    import gvmm.torch
    from gvmm import _compile, _lib

    os.environ["GVMM_LIBRARY"] = gvmm.path()
    headers = _compile.cuda_headers(torch)
    if torch.version.cuda is None or headers is None or not _compile.compilers():
        skip("PyTorch is not one for CUDA, or CUDA's headers or a C++ compiler are missing")
    if torch.cuda.is_available():
        skip("there is a GPU: scripts/torch_check.py says more")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        os.environ["XDG_CACHE_HOME"] = folder
        refusals(gvmm, _compile)
        gvmm.torch.enable()
        gvmm.torch.enable()
        said = [str(one.message) for one in warned if "gvmm" in str(one.message)]
        assert said == ["gvmm does nothing about max_split_size_mb:128, new_key:1 of PYTORCH_CUDA_ALLOC_CONF"], said
        shim = gvmm.torch._kept["current"]
        assert gvmm.torch.is_enabled() and hasattr(shim, "gvmm_shim_install"), "the shim is not the full one"
        calls, made = compile_calls(torch, _compile.compilers()[0], headers, Path(folder)), stream(_lib)
        shim.gvmm_shim_alloc.restype, shim.gvmm_shim_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        failed = calls.torch_shim_check(shim.gvmm_shim_alloc, made)
        assert failed == 0, failed
        names(torch, gvmm, shim.gvmm_shim_alloc, made)
        pools(torch, gvmm)
    print(f"PyTorch {torch.__version__}: the shim is linked and is the current allocator; PyTorch's calls and names reach our pool")


if __name__ == "__main__":
    main()
