#!/usr/bin/env python3
"""PyTorch on a GPU with gvmm's allocator beside its own: correctness, training, graphs, hot calls, two GPUs. Prints its tables as
it goes, so that a run that is cut short has said what it knew.

    scripts/torch_check.py [PART...]       all parts, or those whose names start so, the most telling first:
        hooks_enable, paired_gpt2, limited_gpt2, graphs, hooks_pool, trainer, paired_lora, paired_pool, hot, fsdp, peers

Needs a PyTorch with CUDA, g++ and CUDA's headers, and libgvmm.so: at GVMM_LIBRARY, or .gpu/libgvmm.so.0 (from
`scripts/gpu_check.sh --pack`), or target/release. Writes everything it measured to $OUT/torch.json. Each part has processes and a
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

import torch_turns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = Path(os.environ.setdefault("OUT", tempfile.mkdtemp()))
WORK = Path(os.environ.setdefault("WORK", tempfile.mkdtemp()))
LOG = OUT / "torch_parts.log"
PARTS = os.environ.get("TORCH_PARTS", str(HERE / "torch_parts.py"))
START, LIMIT = time.monotonic(), float(os.environ.get("LIMIT", "350"))
# So many shapes, so many to a block, and so often each block.
STEPS, BLOCK, ROUNDS = 16, 4, int(os.environ.get("ROUNDS", "8"))
results, failed = {}, []


def environment(mode):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONWARNINGS": "ignore"}
    places = [ROOT / ".gpu/libgvmm.so.0", ROOT / "target/release/libgvmm.so"]
    env.setdefault("GVMM_LIBRARY", next((str(place) for place in places if place.exists()), "libgvmm.so"))
    env.setdefault("GVMM_LOG", "warn")
    env.setdefault("XDG_CACHE_HOME", str(WORK / "cache"))
    if mode == "expandable":
        env["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return env


def say(*lines):
    print(*lines, sep="\n", flush=True)
    (OUT / "torch.json").write_text(json.dumps(results, indent=1))


def wanted(name):
    return not sys.argv[1:] or any(name.startswith(word) for word in sys.argv[1:])


def left():
    return LIMIT - (time.monotonic() - START)


def wrong(what):
    failed.append(what)
    say(f"NOT as it shall be: {what}")


def run(name, *arguments, limit=60):
    """Runs one part, keeps its result, or what it said last, and prints that."""
    if not wanted(name):
        return None
    if left() < 5:
        results[name] = {"error": "no time was left"}
        return wrong(f"{name}: no time was left")
    begun = time.monotonic()
    mode = next((word for word in arguments if word in ("native", "expandable", "pool", "enable")), "")
    process = subprocess.Popen(
        [sys.executable, PARTS, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(mode), start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=min(limit, left()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said = process.communicate()[0] + "\ntook too long"
    with open(LOG, "a") as log:
        log.write(f"==== {name}\n" + "\n".join(text[:2000] for text in said.splitlines()[-400:]) + "\n")
    line = next((text for text in reversed(said.splitlines()) if text.startswith("RESULT ")), None)
    result = json.loads(line.removeprefix("RESULT ")) if line else {"error": "\n".join(said.splitlines()[-4:])[-600:]}
    result["seconds"] = round(time.monotonic() - begun, 1)
    results[name] = result
    short = {key: value for key, value in result.items() if key not in ("oom_says", "losses", "times")}
    say(f"{name}: {json.dumps(short)[:700]}")
    if "error" in result or result.get("ok") is False:
        wrong(name)
    return result if line else None


def ratio(mine, base):
    """The median over steps of one run's time to the other's, step by step the same shapes."""
    return statistics.median(a / b for a, b in zip(mine["times"], base["times"]))


def spread(one, other):
    return max(abs(a - b) for a, b in zip(one["losses"], other["losses"]))


def begin(workers, until):
    """All make their models at once; the one with a limit once it is known what `enable` asks for. Peaks by worker."""
    for worker in workers:
        worker.hear(until)
        if worker.name != "enable, 1.03":
            worker.tell(word="begin")
    peaks = {worker.name: worker.hear(until) for worker in workers if worker.name != "enable, 1.03"}
    for worker in workers:
        if worker.name == "enable, 1.03":
            known = peaks.get("enable")
            peaks[worker.name] = worker.ask(until, word="begin", limit=int(known["requested"] * 1.03)) if known else None
    return peaks


def paired(name, model, *modes, limit=110):
    """Trains one model under several allocators at once, which take turns on the GPU."""
    if not wanted(name):
        return
    if left() < 30:
        return wrong(f"{name}: no time was left")
    begun = time.monotonic()
    until = begun + min(limit, left() - 3)
    workers = []
    for which in modes:
        mode = which.split()[0].strip(",")
        command = [sys.executable, PARTS, "turns", model, mode, str(STEPS), str(BLOCK)]
        workers.append(torch_turns.Worker(which, command, environment(mode), LOG))
    begun_with = begin(workers, until)
    prepared = time.monotonic() - begun
    times = torch_turns.rounds(workers, STEPS // BLOCK, ROUNDS, until - 4)
    done = {worker.name: worker.ask(until + 10, word="end") for worker in workers}
    for worker in workers:
        worker.end()
    base = [which for which in modes if which.startswith("native")]
    compared = torch_turns.compare(times, base, STEPS // BLOCK)
    for which, one in done.items():
        # What was lent while turns were taken.
        if one and "lent" in one and begun_with.get(which):
            one.update({key: one[key] - begun_with[which][key] for key in ("lent", "driver_ms")})
    results[name] = {"times": times, "begun": begun_with, "compared": compared, "runs": done, "prepared": prepared, "seconds": time.monotonic() - begun}
    report(name, modes, done, compared)


def report(name, modes, done, compared):
    rows = [
        f"\n{name}: {results[name]['prepared']:.0f} s to prepare, {results[name]['seconds']:.0f} s in all; {ROUNDS * STEPS} steps each,"
        f" medians of {BLOCK} to native's in the same round; native again is to native alone, which is the noise",
        "| allocator | losses | step time to native (middle half) | fastest rounds | blocks | requested, GiB | reserved, GiB | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    native = done.get("native")
    for which in modes:
        one, time_ = done[which], compared.get(which, {})
        if not one or not native:
            rows.append(f"| {which} | FAILED | | | | | | |")
            continue
        apart = spread(native, one)
        note = f"{one['lent']} lent, {one['driver_ms']:.0f} ms in the driver" if "lent" in one else ""
        note += f" {one['retries']} flushes" if one["retries"] else ""
        step = f"{time_['ratio']:.3f} ({time_['low']:.3f} to {time_['high']:.3f}) | {time_.get('fastest', 0):.3f} | {time_['blocks']}" if time_ else "- | - | 0"
        rows.append(
            f"| {which} | {'equal' if apart == 0 else f'{apart:.1e} apart'} | {step} | {one['requested'] / 2**30:.2f} | "
            f"{one['reserved'] / 2**30:.2f} | {note} |"
        )
    say(*rows)
    again = done.get("native again")
    for which in modes:
        judge(f"{name} {which}", done[which], native, compared.get(which), spread(native, again) if native and again else 0.0)


def judge(name, one, native, time_, noise):
    """Losses are native's where two native runs have the same; no slower than is promised; the peak is lower."""
    if not one or not native or not time_:
        return wrong(f"{name}: failed")
    kind = name.rpartition(" ")[2] if "1.03" not in name else "1.03"
    if kind in ("enable", "1.03", "pool", "renewed"):
        if spread(native, one) > noise:
            wrong(f"{name}: losses")
        if time_["ratio"] > (1.03 if kind == "1.03" else 1.01):
            wrong(f"{name}: step time {time_['ratio']:.3f}")
    if kind in ("enable", "1.03") and one["reserved"] >= native["reserved"]:
        wrong(f"{name}: peak")
    return None


def hots():
    if not wanted("hot") or not run("hot_build", "compile_hot", limit=120):
        return
    say("\n| a pair of 1 MB, ns | torch.empty | C++, 1 thread | C++, 4 threads | hooks alone, 1 | hooks alone, 4 |\n|---|---|---|---|---|---|")
    for mode in ("native", "enable", "pool", "expandable"):
        one = run(f"hot_{mode}", "hot", mode)
        if one:
            cells = (one.get(key) for key in ("torch.empty", "c++ 1", "c++ 4", "hooks 1", "hooks 4"))
            say(f"| {mode} | " + " | ".join(f"{cell:.0f}" if cell else "" for cell in cells) + " |")


def two_gpus():
    for which in ("all", "none"):
        run(f"peers_{which}", "peers", which)
    run("peers_pool", "peers", "pool")
    native, ours = (run(f"fsdp_{mode}", "fsdp", mode, limit=90) for mode in ("native", "enable"))
    if native and ours:
        say(f"| FSDP, 2 GPUs | {spread(native, ours):.1e} apart, step time {ratio(ours, native):.3f} of native |")


def gpus():
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    return int(subprocess.run(command, capture_output=True, text=True).stdout.strip() or 0)


def main():
    run("hooks_enable", "hooks", "enable")
    # Four of them would not fit on one card.
    paired("paired_gpt2", "gpt2", "native", "native again", "enable")
    paired("limited_gpt2", "gpt2", "native", "enable", "enable, 1.03")
    run("graphs", "graphs", limit=90)
    run("hooks_pool", "hooks", "pool")
    if wanted("trainer"):
        if subprocess.run([sys.executable, "-c", "import transformers, accelerate"], capture_output=True).returncode == 0:
            run("trainer", "trainer")
        else:
            say("skipped: the Trainer: transformers or accelerate is not installed")
    paired("paired_lora", "lora", "native", "native again", "enable", "enable, 1.03")
    paired("paired_pool", "lora", "native", "pool", "renewed", "expandable")
    hots()
    if (wanted("fsdp") or wanted("peers")) and gpus() > 1:
        two_gpus()
    say(f"\n{time.monotonic() - START:.0f} s; not as it shall be: {', '.join(failed) or 'nothing'}; all of it: {OUT}/torch.json")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
