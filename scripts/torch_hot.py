"""What an allocation and a free cost, through every way to PyTorch's allocator: for scripts/torch_check.py."""

import os
import subprocess
import time
from pathlib import Path

import torch
import torch_modes

HOT = r"""
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <chrono>
#include <thread>
#include <vector>
using alloc_function = void *(size_t, int, void *);
using free_function = void(void *, size_t, int, void *);
template <class F> static double run(int threads, long pairs, F pair) {
    std::vector<cudaStream_t> streams(threads);
    for (int i = 0; i < threads; ++i) streams[i] = c10::cuda::getStreamFromPool(false, 0).stream();
    std::vector<double> ns(threads);
    // Threads that work have a context. Without one, every question for the current device takes longer.
    auto body = [&](int i) {
        cudaSetDevice(0);
        for (long n = 0; n < pairs / 10; ++n) pair(streams[i]);
        auto start = std::chrono::steady_clock::now();
        for (long n = 0; n < pairs; ++n) pair(streams[i]);
        ns[i] = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / pairs;
    };
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i) all.emplace_back(body, i);
    for (auto &thread : all) thread.join();
    double sum = 0;
    for (double one : ns) sum += one;
    return sum / threads;
}
extern "C" double hot_torch(int threads, long pairs, size_t size) {
    return run(threads, pairs, [size](cudaStream_t s) {
        c10::cuda::CUDACachingAllocator::raw_delete(c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(size, s));
    });
}
extern "C" double hot_ours(int threads, long pairs, size_t size, alloc_function *a, free_function *f) {
    return run(threads, pairs, [=](cudaStream_t s) { f(a(size, 0, s), size, 0, s); });
}
"""


def compile_hot():
    """Builds the loops over PyTorch's C++ calls, once."""
    from gvmm import _compile

    folder = Path(os.environ["WORK"])
    built, source, root = folder / "hot.so", folder / "hot.cc", Path(torch.__file__).parent
    if not built.exists():
        source.write_text(HOT)
        places = ["-I", f"{root}/include", "-I", str(_compile.cuda_headers(torch)), "-L", f"{root}/lib"]
        command = ["g++", "-std=c++20", "-O2", "-shared", "-fPIC", str(source), *places, "-lc10", "-lc10_cuda", "-o", str(built)]
        subprocess.run(command, check=True, timeout=200)
    return {"ok": True}


def hot(mode, size="1000000"):
    """An allocation and a free of one size: through torch.empty, PyTorch's C++ calls on one and four threads, and our hooks."""
    import ctypes

    with torch_modes.use(mode):
        torch.empty(1, device="cuda")
        count, bytes_ = 50_000, int(size)
        make, kwargs = torch.empty, {"dtype": torch.uint8, "device": "cuda"}
        best = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(count // 5):
                make(bytes_, **kwargs)
            best.append((time.perf_counter() - start) / (count // 5) * 1e9)
        done = {"torch.empty": min(best)}
        library = ctypes.CDLL(str(Path(os.environ["WORK"]) / "hot.so"))
        for name in ("hot_torch", "hot_ours"):
            getattr(library, name).restype = ctypes.c_double
        for threads in (1, 4):
            pairs = 300_000 if threads == 1 else 50_000
            arguments = [ctypes.c_int(threads), ctypes.c_long(pairs), ctypes.c_size_t(bytes_)]
            done[f"c++ {threads}"] = min(library.hot_torch(*arguments) for _ in range(3))
            if mode == "enable":
                import gvmm

                pair = (gvmm.lib().gvmm_torch_alloc, gvmm.lib().gvmm_torch_free)
                done[f"hooks {threads}"] = min(library.hot_ours(*arguments, *pair) for _ in range(3))
    return {"ok": True, **done}
