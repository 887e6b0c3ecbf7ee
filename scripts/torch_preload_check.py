#!/usr/bin/env python3
"""Runs a small PyTorch training with expandable segments (which are made of virtual memory) without and with the preloaded
library, each leg in a process of its own, and prints one table last.

    scripts/torch_preload_check.py [--folder .jax] [--budget 55]     the folder is that of `scripts/jax_check.sh --pack`

Batches change their size, the cache is emptied now and then, and a graph is replayed, so that parts of segments are unmapped and
mapped again. Legs run in the order of their worth; those that the time does not allow are listed as not run. Ends with 1 where
results differ although two runs without are equal, where no call was seen, or where a leg failed. With --device cpu only the
script itself is tried. Results: $OUT/torch_preload.json, and the trace beside it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from jax_check import between, preload_counts

LEGS = ("none", "observe", "none again", "on", "off", "on again", "observe again")


# ---- in the child ----


def train(torch, device, steps):
    """Losses as bits, and the time of each step of the second half."""
    torch.manual_seed(7)
    layers = [torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)) for _ in range(6)]
    net = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    losses, times, before = [], [], {}
    for step in range(steps):
        if step == steps // 2:
            before = preload_counts()
        x = torch.randn(256 + 512 * (step % 16), 1024).to(device)
        start = time.perf_counter()
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item().hex())
        if step >= steps // 2:
            times.append((time.perf_counter() - start) * 1e6)
        if device == "cuda" and step % 8 == 7:
            torch.cuda.empty_cache()
    result = {"losses": losses, "step_us": statistics.median(times)}
    if before:
        result["second_half"] = between(before, preload_counts())
    return result


def replay(torch, times=20):
    """A graph's result after its replays, with an allocation and a release between them."""
    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    y = torch.sin(x).zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.add_(torch.sin(x))
    for i in range(times):
        graph.replay()
        torch.empty((i + 1) << 22, device="cuda", dtype=torch.uint8).fill_(1)
        if i % 5 == 4:
            torch.cuda.empty_cache()
    return y.sum().item().hex()


def child(options):
    import torch

    torch.use_deterministic_algorithms(True)
    result = {"torch": torch.__version__, "available": torch.cuda.is_available()}
    if options.device == "cuda" and not result["available"]:
        result["skipped"] = "no GPU"
    else:
        start = preload_counts()
        result.update(train(torch, options.device, options.steps))
        if options.device == "cuda":
            result["replay"] = replay(torch)
            result["reserved"] = torch.cuda.max_memory_reserved()
        if start:
            result["whole"] = between(start, preload_counts())
    print("RESULT " + json.dumps(result), flush=True)


# ---- in the parent ----


def environment(leg, library):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GVMM_", "LD_PRELOAD", "PYTORCH_"))}
    env.update(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if leg == "off":
        env.update(LD_PRELOAD=library, GVMM_PRELOAD="off")
    if leg in ("observe", "on"):
        env["JAX_CHECK_PRELOAD"] = library
    return env


def command(options, leg, trace):
    program = [sys.executable, os.path.abspath(__file__), "--child", "--device", options.device, "--steps", str(options.steps)]
    if leg not in ("observe", "on"):
        return program
    traced = ["--trace", trace] if trace else []
    return [os.path.join(options.folder, "gvmm"), "run", "--mode", leg, *traced, "--", *program]


def run(options, name, limit):
    leg = name.split()[0]
    trace = os.path.join(options.out, "torch_preload.csv") if name == "observe" else None
    library = os.path.abspath(os.path.join(options.folder, "libgvmm_preload_cuda.so"))
    try:
        done = subprocess.run(command(options, leg, trace), env=environment(leg, library), capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {limit:.0f} s"}
    said = [line for line in done.stderr.splitlines() if line.startswith("gvmm")]
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][-200:], "said": said}
    return {**json.loads(line[7:]), "status": done.returncode, "said": said}


def judge(legs, device):
    """What is wrong."""
    ran = {name: leg for name, leg in legs.items() if "losses" in leg}
    wrong = [f"{name}: {leg['error']}" for name, leg in legs.items() if leg.get("error", "not run") != "not run"]
    wrong += [f"{name}: ended with {leg['status']}" for name, leg in ran.items() if leg["status"]]
    base, again = ran.get("none"), ran.get("none again")
    same = base and again and base["losses"] == again["losses"] and base.get("replay") == again.get("replay")
    for name, leg in ran.items():
        if same and (leg["losses"], leg.get("replay")) != (base["losses"], base.get("replay")):
            wrong.append(f"{name}: results differ from two runs without")
        if name.split()[0] in ("observe", "on") and device == "cuda" and not leg["whole"]["calls"].get("map"):
            wrong.append(f"{name}: no map was seen")
    return wrong


def row(name, leg, base):
    if "losses" not in leg:
        return [name, leg.get("error") or leg.get("skipped", "no result"), "", "", "", ""]
    equal = "equal" if (leg["losses"], leg.get("replay")) == (base.get("losses"), base.get("replay")) else "differ"
    calls = [leg.get(part, {}) for part in ("second_half", "whole")]
    words = ["; ".join(", ".join(f"{k} {v}" for k, v in part.get("calls", {}).items()) for part in calls if part)]
    vendor = leg.get("whole", {}).get("vendor_calls", "")
    return [name, f"{leg['step_us']:.0f}", equal, f"{leg.get('reserved', 0) >> 20}", *words, str(vendor)]


def check(options):
    end, expected, legs = time.monotonic() + options.budget, 8.0, {}
    for name in LEGS:
        left = end - time.monotonic()
        start = time.monotonic()
        legs[name] = run(options, name, left) if expected < left else {"error": "not run"}
        if legs[name].get("error") != "not run":
            expected = 1.1 * (time.monotonic() - start)
        print(f"== {name}: {legs[name].get('error') or legs[name].get('skipped') or f'{time.monotonic() - start:.0f} s'}", flush=True)
        for line in legs[name].get("said", []):
            print("   " + line[:300], flush=True)
        if "skipped" in legs[name]:
            return 0
    with open(os.path.join(options.out, "torch_preload.json"), "w") as file:
        json.dump(legs, file, indent=1)
    trace = os.path.join(options.out, "torch_preload.csv")
    if os.path.exists(trace):
        done = subprocess.run([os.path.join(options.folder, "gvmm"), "vmm-trace", trace], capture_output=True, text=True)
        print(done.stdout or done.stderr, flush=True)
    print("| leg | µs a step | results | MiB reserved | calls in the second half; in all | of the driver's |\n|" + "---|" * 6)
    for name, leg in legs.items():
        print("| " + " | ".join(row(name, leg, legs["none"])) + " |")
    wrong = judge(legs, options.device)
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=".jax", help="where gvmm and the library are")
    parser.add_argument("--budget", type=float, default=55, help="seconds for all of it")
    parser.add_argument("--steps", type=int, default=64, help="training steps of a leg")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out = os.environ.get("OUT") or tempfile.mkdtemp(prefix="torch_preload_")
    return child(options) if options.child else check(options)


if __name__ == "__main__":
    sys.exit(main())
