#!/usr/bin/env python3
"""PyTorch on a GPU with gvmm's allocator beside its own: correctness, training runs, graphs, hot calls, two GPUs. Prints a short
table last.

    scripts/torch_check.py [PART...]       all parts, or those whose names start so

Needs a PyTorch with CUDA, g++ and CUDA's headers, and libgvmm.so: at GVMM_LIBRARY, or .gpu/libgvmm.so.0 (from
`scripts/gpu_check.sh --pack`), or target/release. Writes everything it measured to $OUT/torch.json. Each part has a process and a
time limit of its own, and the whole ends within LIMIT seconds [350]; what each said is in $OUT/torch_parts.log. Ends with 1 where
something is not as it shall be.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = Path(os.environ.setdefault("OUT", tempfile.mkdtemp()))
WORK = Path(os.environ.setdefault("WORK", tempfile.mkdtemp()))
START, LIMIT = time.monotonic(), float(os.environ.get("LIMIT", "350"))
STEPS = os.environ.get("STEPS", "16")
results, rows, failed = {}, [], []


def environment(mode):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONWARNINGS": "ignore"}
    places = [ROOT / ".gpu/libgvmm.so.0", ROOT / "target/release/libgvmm.so"]
    env.setdefault("GVMM_LIBRARY", next((str(place) for place in places if place.exists()), "libgvmm.so"))
    env.setdefault("GVMM_LOG", "warn")
    env.setdefault("XDG_CACHE_HOME", str(WORK / "cache"))
    if mode == "expandable":
        env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return env


def run(name, *arguments, limit=60):
    """Runs one part and keeps its result, or what it said last."""
    wanted = sys.argv[1:]
    if wanted and not any(name.startswith(word) for word in wanted):
        return None
    left = LIMIT - (time.monotonic() - START)
    if left < 5:
        results[name] = {"error": "no time was left"}
        failed.append(name)
        return None
    begun = time.monotonic()
    mode = next((word for word in arguments if word in ("native", "expandable", "pool", "enable")), "")
    process = subprocess.Popen(
        [sys.executable, str(HERE / "torch_parts.py"), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(mode), start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=min(limit, left))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[0] + "\ntook too long"
    with open(OUT / "torch_parts.log", "a") as log:
        log.write(f"==== {name}\n" + "\n".join(text[:2000] for text in said.splitlines()[-400:]) + "\n")
    line = next((text for text in reversed(said.splitlines()) if text.startswith("RESULT ")), None)
    result = json.loads(line.removeprefix("RESULT ")) if line else {"error": "\n".join(said.splitlines()[-4:])[-600:]}
    result["seconds"] = round(time.monotonic() - begun, 1)
    results[name] = result
    if "error" in result or result.get("ok") is False:
        failed.append(name)
    print(f"{name}: {result['seconds']} s{'' if line else ' FAILED: ' + result['error']}", flush=True)
    (OUT / "torch.json").write_text(json.dumps(results, indent=1))
    return result if line else None


def ratio(mine, base):
    """The median over steps of one run's time to the other's, step by step the same shapes."""
    return statistics.median(a / b for a, b in zip(mine["times"], base["times"]))


def spread(one, other):
    return max(abs(a - b) for a, b in zip(one["losses"], other["losses"]))


def train(model):
    """Every allocator on one model; native twice, to know what equal can mean and how much times scatter."""
    go = lambda tag, mode, limit=0: run(f"train_{model}_{tag}", "train", model, mode, STEPS, limit)  # noqa: E731
    native, ours = go("native", "native"), go("enable", "enable")
    runs = {"native again": go("native2", "native"), "expandable": go("expandable", "expandable"), "enable": ours,
            "mem_pool": go("pool", "pool")}  # fmt: skip
    if ours:
        limit = int(ours["requested"] * 1.03)
        runs["enable, 1.03"] = go("limit", "enable", limit)
        runs["expandable, 1.03"] = go("expandable_limit", "expandable", limit)
    if not native:
        return
    gib = lambda run, key: f"{run[key] / 2**30:.2f}"  # noqa: E731
    rows.append(f"| {model} native | - | 1 | {gib(native, 'requested')} | {gib(native, 'reserved')} | |")
    noise = spread(native, runs["native again"]) if runs["native again"] else 0.0
    for name, one in runs.items():
        if not one:
            rows.append(f"| {model} {name} | FAILED | | | | |")
            continue
        apart = spread(native, one)
        same = "equal" if apart == 0 else f"{apart:.1e} apart"
        reserved = one.get("ours", one["reserved"])
        note = f"{one['lent']} lent, {one['driver_ms']:.0f} ms in the driver" if "lent" in one else ""
        note += f" {one['retries']} flushes" if one["retries"] else ""
        rows.append(f"| {model} {name} | {same} | {ratio(one, native):.3f} | {gib(one, 'requested')} | {reserved / 2**30:.2f} | {note} |")
        if name.startswith(("enable", "mem_pool")):
            bound = 1.03 if "1.03" in name else 1.01
            if apart > noise or (name == "enable" and reserved >= native["reserved"]):
                failed.append(f"{model} {name}: losses or peak")
            if ratio(one, native) > bound:
                failed.append(f"{model} {name}: step time")


def main():
    rows.append("| training | losses | step time to native | requested, GiB | reserved, GiB | |")
    rows.append("|---|---|---|---|---|---|")
    run("hooks_enable", "hooks", "enable")
    run("hooks_pool", "hooks", "pool")
    run("graphs", "graphs", limit=90)
    if run("hot_build", "compile_hot", limit=120):
        hots = {mode: run(f"hot_{mode}", "hot", mode) for mode in ("native", "expandable", "enable", "pool")}
    else:
        hots = {}
    for model in ("gpt2", "lora"):
        train(model)
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    count = int(subprocess.run(command, capture_output=True, text=True).stdout.strip() or 0)
    two = {}
    if count > 1:
        two = {mode: run(f"fsdp_{mode}", "fsdp", mode, limit=90) for mode in ("native", "enable")}
        for which in ("all", "none"):
            run(f"peers_{which}", "peers", which)
    if subprocess.run([sys.executable, "-c", "import transformers, accelerate"], capture_output=True).returncode == 0:
        run("trainer", "trainer")
    else:
        print("skipped: the Trainer: transformers or accelerate is not installed (GPT-2 and LoRA above are plain PyTorch)")
    table(hots, two)
    return 1 if failed else 0


def table(hots, two):
    print("\n" + "\n".join(rows))
    print("\n| a pair of 1 MB, ns | torch.empty | C++, 1 thread | C++, 4 threads | hooks alone, 1 | hooks alone, 4 |\n|---|---|---|---|---|---|")
    for mode, one in hots.items():
        if one:
            cells = (one.get(key) for key in ("torch.empty", "c++ 1", "c++ 4", "hooks 1", "hooks 4"))
            print(f"| {mode} | " + " | ".join(f"{cell:.0f}" if cell else "" for cell in cells) + " |")
    print("\n| check | result |\n|---|---|")
    for name in ("hooks_enable", "hooks_pool", "graphs", "peers_all", "peers_none", "trainer"):
        if name in results:
            kept = {key: value for key, value in results[name].items() if key != "oom_says"}
            print(f"| {name} | {json.dumps(kept)[:420]} |")
    if all(two.values()) and two:
        print(f"| FSDP, 2 GPUs | {spread(*two.values()):.1e} apart, step time {ratio(two['enable'], two['native']):.3f} of native |")
    print(f"\n{time.monotonic() - START:.0f} s; not as it shall be: {', '.join(failed) or 'nothing'}; all of it: {OUT}/torch.json")


if __name__ == "__main__":
    sys.exit(main())
