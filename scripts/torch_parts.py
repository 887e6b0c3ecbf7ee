"""The parts of scripts/torch_check.py, each run in a process of its own: it prints one line `RESULT {json}`."""

import gc
import json
import math
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE)]

MIB = 1 << 20


def use(mode, **options):
    """Chooses the allocator; gives a context in which it serves."""
    import contextlib

    if mode in ("native", "expandable"):
        return contextlib.nullcontext()
    import gvmm.torch

    if mode == "enable":
        gvmm.torch.enable(**options)
        return contextlib.nullcontext()
    return gvmm.torch.use(gvmm.torch.mem_pool(**options))


def figures(mode):
    """Peaks in bytes: what was requested and what was reserved of the device."""
    stats = torch.cuda.memory_stats()
    out = {"requested": stats["requested_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}
    if mode in ("enable", "pool"):
        import gvmm.torch

        ours = gvmm.torch.memory_stats()
        out["lent"], out["driver_ms"] = ours["gvmm"]["lent_chunks"], ours["gvmm"]["driver_ns"] / 1e6
        out["ours"] = ours["reserved_bytes"]["all"]["peak"]
    return out


def train(model, mode, steps="16", limit="0"):
    """Trains and gives losses, times of the second pass over the same shapes, and peaks."""
    try:
        return train_once(model, mode, steps, limit, False)
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        print(error)
        return train_once(model, mode, steps, limit, True)


def train_once(model, mode, steps, limit, warn_only):
    import torch_models

    # With warnings only, attention would not be deterministic.
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = False
    options = {"limit": int(limit)} if int(limit) and mode in ("enable", "pool") else {}
    with use(mode, **options):
        if int(limit) and not options:
            torch.cuda.set_per_process_memory_fraction(int(limit) / torch.cuda.get_device_properties(0).total_memory)
        torch.manual_seed(1)
        make, batch, longest = torch_models.MODELS[model]
        with torch.device("cuda"):
            net, vocabulary = make(small="SMALL" in os.environ)
        weights = [p for p in net.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
        data = torch.Generator(device="cuda").manual_seed(3)
        losses, times = [], []
        for part in range(2):
            for rows, length in torch_models.shapes(batch, longest, int(steps)):
                ids = torch.randint(vocabulary, (rows, length), device="cuda", generator=data)
                torch.cuda.synchronize()
                start = time.perf_counter()
                with torch.autocast("cuda", torch.bfloat16):
                    loss = net(ids)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                if part:
                    times.append(time.perf_counter() - start)
                losses.append(loss.detach())
        losses = torch.stack(losses).tolist()
        return {"losses": losses, "times": times, "retries": torch.cuda.memory_stats()["num_alloc_retries"], **figures(mode)}


def step(net, optimizer):
    loss = net(torch.randn(256, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def hooks(mode):
    """Out of memory is PyTorch's error and training goes on after it; statistics, streams, and a snapshot that opens."""
    done = {}
    with use(mode, limit=8 << 30, **({"history": 10000} if mode == "enable" else {})):
        net = torch.nn.Sequential(torch.nn.Linear(512, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        first = step(net, optimizer)
        kind, message = "nothing", ""
        try:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            kind, message = "OutOfMemoryError", str(error)
        done["oom"] = kind
        done["oom_says"] = message[:400]
        held = []
        try:
            while len(held) < 64:
                held.append(torch.empty(1 << 29, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            done["full"] = len(held)
        held.clear()
        # The data is random, so that losses say little: they are numbers, and a sum that is known is right.
        finite = all(math.isfinite(loss) for loss in (first, *(step(net, optimizer) for _ in range(20))))
        done["goes on"] = finite and torch.arange(MIB, device="cuda").sum().item() == MIB * (MIB - 1) // 2
        empty = torch.empty(0, device="cuda")
        done["empty"] = empty.data_ptr() == 0
        side, block = torch.cuda.Stream(), torch.ones(MIB, device="cuda")
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.current_stream())
            torch.cuda._sleep(200_000_000)
            doubled = block * 2
        block.record_stream(side)
        address = block.data_ptr()
        del block
        again = torch.zeros(MIB, device="cuda")
        done["record_stream"] = again.data_ptr() != address
        torch.cuda.synchronize()
        done["right"] = bool((doubled == 2).all())
        del doubled, again
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        kept = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
        done["allocated"] = (torch.cuda.memory_allocated() - before) // MIB
        done["peak"] = (torch.cuda.max_memory_allocated() - before) // MIB
        del kept
        gc.collect()
        reserved = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        # In a MemPool PyTorch keeps what it has.
        done["emptied"] = torch.cuda.memory_reserved() < reserved or mode == "pool"
        done["summary"] = "PyTorch CUDA memory summary" in torch.cuda.memory_summary()
        done["snapshot"] = viewer(Path(os.environ["OUT"]) / f"snapshot_{mode}.pickle")
        if mode == "enable":
            try:
                torch.cuda.set_per_process_memory_fraction(1e-6)
                done["fraction"] = "taken"
            except RuntimeError as error:
                done["fraction"] = str(error)[:100]
        del net, optimizer, empty
        gc.collect()
    done["ok"] = (
        done["oom"] == "OutOfMemoryError"
        and all(done[key] for key in ("full", "goes on", "empty", "record_stream", "right", "emptied", "summary"))
        and done["allocated"] >= 100 and done["peak"] >= 100 and done["snapshot"]["segments"] > 0
    )  # fmt: skip
    return done


def viewer(file):
    """Writes a snapshot by PyTorch's own function and reads it by PyTorch's own viewer."""
    from torch.cuda import _memory_viz

    torch.cuda.memory._dump_snapshot(str(file))
    with open(file, "rb") as opened:
        data = pickle.load(opened)
    _memory_viz.segsum(data)
    _memory_viz.trace(data)
    pages = [_memory_viz.trace_plot(data), _memory_viz.segment_plot(data)]
    file.with_suffix(".html").write_text(pages[0])
    return {"segments": len(data["segments"]), "events": sum(map(len, data["device_traces"])), "pages": list(map(len, pages))}


def graphs(replays="1000"):
    """A graph is replayed while blocks of two other streams push chunks about between replays, within a limit."""
    import gvmm.torch

    gvmm.torch.enable(limit=1600 * MIB)
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda().requires_grad_(False)
    inputs = [torch.randn(512, 1024, device="cuda") for _ in range(8)]
    static, streams = inputs[0].clone(), [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()

    def work(x):
        for layer in net:
            x = torch.tanh(layer(x)) + torch.sort(x, dim=1).values * 0.1
        return x

    with torch.cuda.stream(streams[0]):
        [work(x) for x in inputs]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work(static)
    expected = []
    for x in inputs:
        static.copy_(x)
        graph.replay()
        expected.append(result.clone())
    eager = max((work(x) - y).abs().max().item() for x, y in zip(inputs, expected))
    begun = gvmm.torch.memory_stats()["gvmm"]
    wrong = torch.zeros((), dtype=torch.long, device="cuda")
    checks = [torch.zeros((), dtype=torch.long, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for i in range(int(replays)):
        stream = streams[i % 2]
        with torch.cuda.stream(stream):
            # Sizes that change, so that holes never fit; together more than the limit leaves for one stream's cache.
            sizes = [(37 + 61 * ((i + j) % 5)) * MIB for j in range(5)]
            blocks = [torch.full((size,), (i + j) % 251, dtype=torch.uint8, device="cuda") for j, size in enumerate(sizes)]
            checks[i % 2] += sum((block[:: 4096] != (i + j) % 251).sum() for j, block in enumerate(blocks))
        static.copy_(inputs[i % 8])
        graph.replay()
        wrong += (result != expected[i % 8]).any()
        del blocks
        if i % 50 == 49:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    ended = gvmm.torch.memory_stats()["gvmm"]
    done = {"replays": int(replays), "wrong": int(wrong), "blocks_wrong": int(sum(checks)), "eager_difference": eager}
    done.update({key: ended[key] - begun[key] for key in ("lent_chunks", "stream_waits", "host_waits", "unmap_calls", "device_syncs")})
    del graph, result
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    done["ok"] = done["wrong"] == 0 and done["blocks_wrong"] == 0 and done["lent_chunks"] > 100 and eager < 1e-2
    return done


HOT = r"""
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <chrono>
#include <thread>
#include <vector>
using alloc_function = void *(size_t, int, void *);
using free_function = void(void *, size_t, int, void *);
template <class F> static double run(int threads, long pairs, F pair) {
    std::vector<cudaStream_t> streams(threads);
    for (int i = 0; i < threads; ++i) streams[i] = c10::cuda::getStreamFromPool(false, 0).stream();
    std::vector<double> ns(threads);
    auto body = [&](int i) {
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

    with use(mode):
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


def fsdp(mode):
    """Two ranks train one model whole and sharded; gives the losses."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, __file__, "fsdp_rank", mode]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate()[0] for rank in ranks]
    return json.loads(said[0].rpartition("RESULT ")[2])


def fsdp_rank(mode):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    import torch_models

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank) if mode in ("native", "expandable") else None
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    with use(mode):
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        torch.manual_seed(1)
        with torch.device("cuda"):
            net, vocabulary = torch_models.gpt2_medium(small="SMALL" in os.environ)
        for block in net.blocks:
            fully_shard(block)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
        data, losses, times = torch.Generator(device="cuda").manual_seed(3 + rank), [], []
        for rows, length in torch_models.shapes(24, 1024, 16):
            ids = torch.randint(vocabulary, (rows, length), device="cuda", generator=data)
            torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast("cuda", torch.bfloat16):
                loss = net(ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            losses.append(loss.item())
        done = {"ok": True, "losses": losses, "times": times[5:], **figures(mode)}
        dist.destroy_process_group()
    return done


def peers(which):
    """Copies between two GPUs by copy engines and by a kernel, with peers or without."""
    import gvmm.torch

    gvmm.torch.enable(peers="all" if which == "all" else None)
    a = torch.arange(4 * MIB, dtype=torch.int32, device="cuda:0")
    done = {}
    for name, copy in (("whole", lambda: a.to("cuda:1")), ("strided", lambda: a.view(2048, 2048).T.to("cuda:1"))):
        try:
            there = copy()
            torch.cuda.synchronize(1)
            torch.cuda.synchronize(0)
            done[name] = "right" if torch.equal(there.cpu(), (a if name == "whole" else a.view(2048, 2048).T).cpu()) else "wrong"
        except RuntimeError as error:
            done[name] = str(error).splitlines()[0][:160]
    return {"ok": which != "all" or done == {"whole": "right", "strided": "right"}, **done}


def trainer():
    """A Trainer of the transformers library, on a GPT-2 of its own making."""
    # One GPU: with more, the Trainer would spread the model over all of them.
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    import transformers

    use("enable")
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000)
    rows = [{"input_ids": (ids := torch.randint(1000, (64 + 16 * (i % 13),)).tolist()), "labels": ids} for i in range(64)]
    arguments = transformers.TrainingArguments(
        str(Path(os.environ["WORK"]) / "trainer"), per_device_train_batch_size=1, max_steps=50, report_to=[], save_strategy="no"
    )
    model = transformers.GPT2LMHeadModel(config)
    result = transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    return {"ok": result.training_loss > 0, "loss": result.training_loss}


if __name__ == "__main__":
    part = globals()[sys.argv[1]]
    print("RESULT", json.dumps(part(*sys.argv[2:])), flush=True)
