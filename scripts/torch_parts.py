"""The parts of scripts/torch_check.py, each run in a process of its own: it prints one line `RESULT {json}`."""

import gc
import json
import math
import os
import pickle
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE)]

from torch_hot import compile_hot, hot  # noqa: E402, F401
from torch_modes import MIB, use  # noqa: E402
from torch_train import fsdp, fsdp_rank, trainer, turns  # noqa: E402, F401


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


def peers(which):
    """Copies between two GPUs by copy engines and by a kernel, with peers or without; `pool`: without, and from a MemPool."""
    import gvmm.torch

    if which == "pool":
        scope = gvmm.torch.use(gvmm.torch.mem_pool(), 0)
        scope.__enter__()
    else:
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


if __name__ == "__main__":
    part = globals()[sys.argv[1]]
    print("RESULT", json.dumps(part(*sys.argv[2:])), flush=True)
