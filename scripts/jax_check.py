"""Runs JAX with and without the preloaded library, each leg in a process of its own, and prints one table last.

A leg is an allocator (default, vmm), an update mode of XLA's command buffers, and what the preload does (none: not loaded).
Legs run in the order of their worth; those that the time does not allow are listed as not run. See jax_check.sh.
"""

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
MODES = ("ALWAYS_UPDATE", "SKIP_TEMP", "SKIP_PROFILED")


# ---- in the child: what is measured ----


def preload_counts():
    """What the preloaded library counted so far: its own report, or nothing."""
    path = os.environ.get("JAX_CHECK_PRELOAD")
    if not path:
        return {}
    report = ctypes.CDLL(path).gvmm_preload_report
    report.restype = ctypes.c_size_t
    report.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(16384)
    report(text, len(text))
    counts = json.loads(text.value)
    return {name: value for name, value in counts.items() if isinstance(value, dict)}


def between(before, after):
    """Calls by kind between two reports, without zeros; and the vendor's time and calls."""
    calls = {k: after[k]["calls"] - before[k]["calls"] for k in after}
    vendor = sum(
        after[k][f] * s - before[k][f] * s for k in after for f, s in (("calls", 1), ("added", 1), ("spared", -1))
    )
    ns = sum(after[k]["ns"] - before[k]["ns"] for k in after)
    return {"calls": {k: v for k, v in calls.items() if v}, "vendor_calls": vendor, "us": ns / 1000}


def model(jax, jnp, layers, width):
    """A small training step: parameters and optimizer state donated, scales, histories and metrics not."""
    keys = jax.random.split(jax.random.PRNGKey(7), layers)
    weights = [jax.random.normal(k, (width, width), jnp.float32) * 0.02 for k in keys]
    state = {"w": weights, "m": [jnp.zeros_like(w) for w in weights]}
    scales = [jnp.ones((width,), jnp.float32) for _ in range(layers)]

    def loss_of(weights, scales, x, y):
        norms = []
        for w, s in zip(weights, scales):
            x = x + jnp.tanh((x @ w) * s)
            norms.append(jnp.mean(x * x))
        return jnp.mean((x - y) ** 2), norms

    def step(state, scales, x, y):
        (loss, norms), grads = jax.value_and_grad(loss_of, has_aux=True)(state["w"], scales, x, y)
        m = [0.9 * m + g for m, g in zip(state["m"], grads)]
        w = [w - 0.01 * m for w, m in zip(state["w"], m)]
        new = [0.99 * s + 0.01 / (1.0 + n) for s, n in zip(scales, norms)]
        return {"w": w, "m": m}, new, loss, norms

    return state, scales, step


def timed_steps(jax, jitted, state, scales, batches, steps, warm):
    """Losses as bits, the time of each step after the warm ones, and what was called meanwhile."""
    losses, times, before = [], [], {}
    for i in range(steps):
        if i == warm:
            before = preload_counts()
        start = time.perf_counter()
        state, scales, loss, _ = jitted(state, scales, *batches[i % len(batches)])
        jax.block_until_ready((state, scales, loss))
        if i >= warm:
            times.append((time.perf_counter() - start) * 1e6)
        losses.append(float(loss).hex())
    result = {"losses": losses, "step_us": statistics.median(times), "step_us_p90": sorted(times)[int(len(times) * 0.9)]}
    if before:
        result["steady"] = between(before, preload_counts())
    return result


def child_train(jax, jnp, steps):
    import numpy as np

    state, scales, step = model(jax, jnp, 12, 1024)
    random = np.random.default_rng(3)
    batches = [
        tuple(jax.device_put(random.standard_normal((512, 1024), dtype=np.float32)) for _ in range(2)) for _ in range(4)
    ]
    return timed_steps(jax, jax.jit(step, donate_argnums=(0,)), state, scales, batches, steps, steps // 3)


def child_shapes(jax, jnp, passes):
    """The length changes every step; the first pass compiles."""
    import numpy as np

    lengths = [256 + 96 * i for i in range(16)]
    random = np.random.default_rng(5)
    inputs = [random.standard_normal((n, 2048), dtype=np.float32) for n in lengths]
    weight = jax.device_put(random.standard_normal((2048, 2048), dtype=np.float32) * 0.02)
    work = jax.jit(lambda x, w: (jnp.tanh(x @ w) @ w, jnp.sum(x * x, axis=1)))
    sums, times, before, start = [], [], {}, preload_counts()
    for turn in range(passes):
        if turn == 1:
            before = preload_counts()
        for x in inputs:
            began = time.perf_counter()
            out, norms = work(jax.device_put(x), weight)
            jax.block_until_ready((out, norms))
            if turn:
                times.append((time.perf_counter() - began) * 1e6)
            sums.append([float(jnp.sum(out)).hex(), float(jnp.sum(norms)).hex()])
    result = {"losses": sums, "step_us": statistics.median(times), "step_us_p90": sorted(times)[int(len(times) * 0.9)]}
    if before:
        after = preload_counts()
        result.update(steady=between(before, after), whole=between(start, after))
    return result


def child_peers(jax, jnp, steps):
    """The batch is spread over two GPUs: the gradients are summed by a collective, buffers are made for both."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if len(jax.devices()) < 2:
        return {"skipped": "one GPU"}
    start = preload_counts()
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    everywhere, spread = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("d"))
    state, scales, step = model(jax, jnp, 6, 1024)
    state, scales = jax.device_put((state, scales), everywhere)
    random = np.random.default_rng(3)
    batches = [
        tuple(jax.device_put(random.standard_normal((512, 1024), dtype=np.float32), spread) for _ in range(2))
        for _ in range(4)
    ]
    result = timed_steps(jax, jax.jit(step, donate_argnums=(0,)), state, scales, batches, steps, steps // 3)
    if start:
        after = preload_counts()
        result["whole"] = between(start, after)
        access = {f: after["set_access"][f] - start["set_access"][f] for f in ("calls", "spared", "added", "ns")}
        result["access"] = access
    return result


def child(what, steps):
    began = time.perf_counter()
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    result = {"jax": jax.__version__, "device": devices[0].device_kind, "start_s": time.perf_counter() - began}
    for name in what.split(","):
        function = {"train": child_train, "shapes": child_shapes, "peers": child_peers}[name]
        result[name] = function(jax, jnp, 4 if name == "shapes" else steps)
    result["seconds"] = time.perf_counter() - began
    print("RESULT " + json.dumps(result), flush=True)


# ---- in the parent: legs ----


class Check:
    def __init__(self, options):
        self.options = options
        self.out = os.environ.get("OUT") or options.folder
        self.end = time.monotonic() + options.budget
        self.rows, self.expected = [], 15.0
        self.cache = tempfile.mkdtemp(prefix="jax_check_")
        self.library = os.path.abspath(os.path.join(options.folder, "libgvmm_preload_cuda.so"))
        self.results = {}

    def environment(self, preload, allocator="vmm", flags="", trace=None, devices=1):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "GVMM_", "LD_PRELOAD"))}
        env["XLA_FLAGS"] = f"{DETERMINISTIC} {flags}".strip()
        env["JAX_COMPILATION_CACHE_DIR"] = self.cache
        env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        env["TF_CPP_MIN_LOG_LEVEL"] = "2"
        if devices == 1:
            env["CUDA_VISIBLE_DEVICES"] = env.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        if allocator != "default":
            env["XLA_PYTHON_CLIENT_ALLOCATOR"] = allocator
        if preload != "none":
            env.update(LD_PRELOAD=self.library, GVMM_PRELOAD=preload, JAX_CHECK_PRELOAD=self.library, GVMM_LOG="info")
        if trace:
            env["GVMM_PRELOAD_TRACE"] = trace
        return env

    def leg(self, name, what, preload, allocator="vmm", flags="", steps=None, trace=None, devices=1):
        """Runs a child; its result, or why there is none."""
        if time.monotonic() + self.expected > self.end:
            return self.keep(name, {"error": "not run: no time left"})
        command = [sys.executable, os.path.abspath(__file__), "--child", what, "--steps", str(steps or self.options.steps)]
        start = time.monotonic()
        limit = max(10.0, min(120.0, self.end - start + 20))
        try:
            env = self.environment(preload, allocator, flags, trace, devices)
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit)
            text, error = done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            text, error = "", f"longer than {limit:.0f} s {late.stderr or ''}"
        self.expected = 1.2 * (time.monotonic() - start)
        line = next((line for line in text.splitlines() if line.startswith("RESULT ")), None)
        with open(os.path.join(self.out, f"jax_{name}.log"), "w") as log:
            log.write(text + "\n" + error)
        if line:
            return self.keep(name, json.loads(line[7:]))
        unknown = any(text in error for text in ("nknown flag", "Unknown command line", "Flag parsing failed"))
        last = (error.strip().splitlines() or ["no output"])[-1][-160:]
        return self.keep(name, {"error": "flag unknown to this JAX" if unknown else f"failed: {last}"})

    def keep(self, name, result):
        self.results[name] = result
        words = result.get("error") or f"{result.get('seconds', 0):.0f} s"
        print(f"== {name}: {words}", flush=True)
        return result

    def row(self, what, *cells):
        self.rows.append([what, *cells])

    def steady(self):
        """The training loop and the loop of shapes: twice without, then observe and on."""
        names = ("none", "off", "observe", "on", "none again", "observe again", "on again")
        legs = {n: self.leg(f"base_{n.replace(' ', '_')}", "train,shapes", n.split()[0]) for n in names}
        for part in ("train", "shapes"):
            runs = {n: legs[n].get(part, {}) for n in names}
            pair = [runs["none"], runs["none again"]]
            if not all("losses" in run for run in pair):
                self.row(part, "vmm", "none", legs["none"].get("error", "no result"), "", "", "")
                continue
            same = pair[0]["losses"] == pair[1]["losses"]
            for name in names:
                run = runs[name]
                if "losses" not in run:
                    self.row(part, "vmm", name, legs[name].get("error", "no result"), "", "", "")
                    continue
                equal = "equal" if run["losses"] == pair[0]["losses"] else ("DIFFERENT" if same else "as two without: differ")
                self.row(part, "vmm", name, f"{run['step_us']:.0f}", equal, self.calls(run), f"{run.get('steady', {}).get('us', 0):.0f}")

    def pairs(self):
        """The same loops in turn without and with, as often as there is time and in another order each time: runs differ more
        from one another than legs do, so each is set beside the run without of its round."""
        names = ["none", "observe", "on"]
        legs, turn = {name: [] for name in names}, 0
        while time.monotonic() + 3 * self.expected < self.end:
            for name in names[turn % 3 :] + names[: turn % 3]:
                legs[name].append(self.leg(f"pair_{name}_{turn}", "train,shapes", name))
            turn += 1
        for part in ("train", "shapes"):
            for name in names:
                pairs = [(leg[part], base[part]) for leg, base in zip(legs[name], legs["none"]) if part in leg and part in base]
                if not pairs:
                    self.row(part, "vmm", name, "no result", "", "", "")
                    continue
                us = sorted(run["step_us"] for run, _ in pairs)
                ratio = statistics.median(run["step_us"] / base["step_us"] for run, base in pairs)
                equal = "equal" if all(run["losses"] == pairs[0][1]["losses"] for run, _ in pairs) else "differ"
                times = f"{statistics.median(us):.0f}, {us[0]:.0f} to {us[-1]:.0f}; {ratio:.3f} of none"
                most = max(run.get("steady", {}).get("us", 0) for run, _ in pairs)
                self.row(f"{part}, {len(pairs)} rounds", "vmm", name, times, equal, self.calls(pairs[-1][0]), f"{most:.0f}")

    @staticmethod
    def calls(run):
        """In steady state; and, where it was counted, in the whole loop."""
        steady, whole = run.get("steady"), run.get("whole")
        if steady is None:
            return ""
        words = [", ".join(f"{k} {v}" for k, v in counts["calls"].items()) or "none" for counts in (steady, whole) if counts]
        return "; in all ".join(words)

    def modes(self):
        """XLA's update modes, default allocator and vmm, without and with the preload: the whole table twice, since runs
        differ more from one another than legs do."""
        legs = [(p, m, a) for p in ("none", "observe", "on") for m in MODES for a in ("default", "vmm")]
        runs = {leg: [] for leg in legs}
        for turn in range(self.options.rounds):
            for preload, mode, allocator in legs:
                flag = f"--xla_gpu_command_buffer_update_mode={mode}"
                found = self.leg(f"mode_{mode}_{allocator}_{preload}_{turn}", "train", preload, allocator, flag)
                runs[preload, mode, allocator].append(found)
        for (preload, mode, allocator), found in runs.items():
            trains = [leg["train"] for leg in found if "train" in leg]
            if not trains:
                self.row(mode, allocator, preload, found[0].get("error", "no result"), "", "", "")
                continue
            first = [leg["train"]["losses"] for leg in runs["none", mode, allocator] if "train" in leg]
            equal = "equal" if first and all(run["losses"] == first[0] for run in trains) else "differ"
            times = " / ".join(f"{run['step_us']:.0f}" for run in trains)
            us = max(run.get("steady", {}).get("us", 0) for run in trains)
            self.row(mode, allocator, preload, times, equal, self.calls(trains[0]), f"{us:.0f}")

    def peers(self):
        first = None
        for preload in ("none", "observe", "on"):
            trace = os.path.join(self.out, f"jax_peers_{preload}.csv") if preload != "none" else None
            leg = self.leg(f"peers_{preload}", "peers", preload, steps=30, trace=trace, devices=2)
            run = leg.get("peers") or {"skipped": leg.get("error", "no result")}
            if "skipped" in run:
                self.row("two GPUs", "vmm", preload, run["skipped"], "", "", "")
                if run["skipped"] == "one GPU":
                    return
                continue
            first = first or run
            equal = "equal" if first["losses"] == run["losses"] else "differ"
            access = run.get("access")
            words = ""
            if access:
                vendor = access["calls"] + access["added"] - access["spared"]
                words = f"whole run: set_access {access['calls']}, of the driver's {vendor}"
            self.row("two GPUs", "vmm", preload, f"{run['step_us']:.0f}", equal, words, f"{access['ns'] / 1000:.0f}" if access else "")
            if trace and os.path.exists(trace):
                self.show_trace(trace)

    def show_trace(self, trace):
        gvmm = os.path.join(self.options.folder, "gvmm")
        done = subprocess.run([gvmm, "vmm-trace", trace], capture_output=True, text=True)
        print(done.stdout or done.stderr, flush=True)

    def overhead(self):
        """Nanoseconds a call, and microseconds of XLA's pattern, by a small C program: the lowest of three runs each."""
        program = os.path.join(self.options.folder, "overhead")
        table = {}
        for preload in ("none", "off", "observe", "on"):
            for _ in range(3):
                done = subprocess.run([program], env=self.environment(preload, devices=2), capture_output=True, text=True, timeout=60)
                try:
                    found = json.loads(done.stdout)
                except ValueError:
                    found = {"error": (done.stdout + done.stderr)[-160:]}
                known = table.setdefault(preload, found)
                for key, value in found.items():
                    if isinstance(value, float) and key in known:
                        known[key] = min(value, known[key])
        self.results["overhead"] = table
        return table

    def run(self):
        overhead = self.overhead()
        for part in self.options.only.split(","):
            {"steady": self.steady, "pairs": self.pairs, "peers": self.peers, "modes": self.modes}[part]()
        shutil.rmtree(self.cache, ignore_errors=True)
        with open(os.path.join(self.out, "jax_check.json"), "w") as file:
            json.dump(self.results, file, indent=1)
        keys = list(overhead["none"])
        print("\n| C program, µs or ns as named | " + " | ".join(keys) + " |\n|" + "---|" * (len(keys) + 1))
        for name, values in overhead.items():
            print(f"| {name} | " + " | ".join(str(values.get(k, values.get("error", ""))) for k in keys) + " |")
        print("\n| loop or mode | allocator | preload | µs a step | results | calls in steady state | µs in them |")
        print("|---|---|---|---|---|---|---|")
        for row in self.rows:
            print("| " + " | ".join(map(str, row)) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=".jax", help="what jax_check.sh --pack made")
    parser.add_argument("--budget", type=float, default=330, help="seconds for all of it")
    parser.add_argument("--steps", type=int, default=400, help="training steps of a leg")
    parser.add_argument("--rounds", type=int, default=2, help="how often the table of modes is run")
    parser.add_argument("--only", default="steady,peers,modes", help="which parts, in this order; pairs too: takes all the time that is left")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.steps)
    else:
        Check(options).run()


if __name__ == "__main__":
    main()
