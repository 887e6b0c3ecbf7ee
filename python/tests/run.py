#!/usr/bin/env python3
"""The package's tests that need neither a GPU nor PyTorch: on the host driver, by ctypes."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
if "GVMM_TEST_LIBRARY" in os.environ:
    os.environ["GVMM_LIBRARY"] = os.environ["GVMM_TEST_LIBRARY"]
os.environ.update(GVMM_DRIVER="host", GVMM_HOST_MEMORY="256M", GVMM_POOL_HISTORY="100")

import gvmm  # noqa: E402
from gvmm import _compile, _config, _lib, _picture, _pools  # noqa: E402
from turns import Turns  # noqa: E402, F401

MIB = 1 << 20


class Pool:
    """A stream of the host driver, and PyTorch's calls on it."""

    def __init__(self):
        self.device, self.stream, self.pool = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        desc = _lib.DeviceDesc(ctypes.sizeof(_lib.DeviceDesc), 4, 0)
        _lib.call("gvmm_device_open", ctypes.byref(desc), ctypes.byref(self.device))
        _lib.call("gvmm_stream_create", self.device, ctypes.byref(self.stream))

    def alloc(self, size):
        return gvmm.lib().gvmm_torch_alloc(size, 0, self.stream)

    def free(self, address, size):
        gvmm.lib().gvmm_torch_free(address, size, 0, self.stream)

    def open(self):
        _lib.call("gvmm_torch_pool", 0, ctypes.byref(self.pool))
        return self.pool

    def stats(self):
        stats = _lib.PoolStats(struct_size=ctypes.sizeof(_lib.PoolStats))
        _lib.call("gvmm_pool_query", self.pool, ctypes.byref(stats))
        return stats

    def snapshot(self):
        text, needed = ctypes.create_string_buffer(1 << 20), ctypes.c_size_t()
        _lib.call("gvmm_pool_snapshot", self.pool, text, len(text), ctypes.byref(needed))
        return json.loads(text.value)


class Library(unittest.TestCase):
    def test_the_version_is_the_librarys(self):
        self.assertRegex(gvmm.lib().gvmm_version_string().decode(), r"^\d+\.\d+\.\d+")

    def test_a_failure_is_an_exception_with_its_status_and_message(self):
        with self.assertRaises(gvmm.Error) as raised:
            _lib.call("gvmm_pool_trim", None, None)
        self.assertGreaterEqual(raised.exception.status, 100)
        self.assertTrue(str(raised.exception))

    def test_a_library_that_is_not_there_is_named(self):
        code = "import gvmm; gvmm.lib()"
        env = {**os.environ, "GVMM_LIBRARY": "/nowhere/libgvmm.so", "PYTHONPATH": str(HERE.parent)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere/libgvmm.so", done.stderr)


class Figures(unittest.TestCase):
    """One pool for all: it is the process's."""

    @classmethod
    def setUpClass(cls):
        cls.pool = Pool()
        with unittest.TestCase().assertRaises(gvmm.Error) as raised:
            cls.pool.open()
        cls.before = raised.exception.status
        first = cls.pool.alloc(1)
        cls.pool.free(first, 1)
        cls.pool.open()

    def test_there_is_no_pool_before_the_first_allocation(self):
        self.assertEqual(self.before, _lib.WRONG_STATE)

    def test_figures_follow_allocations(self):
        base = self.pool.stats()
        held = [self.pool.alloc(size) for size in (1000, 3 * MIB, 5 * MIB)]
        self.assertTrue(all(held))
        now = _picture.memory_stats(self.pool.stats(), _picture.totals(base))
        rise = lambda name, part: (  # noqa: E731
            now[name][part]["current"] - _picture.memory_stats(base)[name][part]["current"]
        )
        self.assertEqual(rise("allocated_bytes", "all"), 1024 + 8 * MIB)
        self.assertEqual(rise("allocated_bytes", "small_pool"), 1024)
        self.assertEqual(rise("requested_bytes", "all"), 1000 + 8 * MIB)
        self.assertEqual((rise("allocation", "large_pool"), rise("active", "small_pool")), (2, 1))
        self.assertGreaterEqual(now["reserved_bytes"]["all"]["current"], now["allocated_bytes"]["all"]["current"])
        self.assertGreaterEqual(now["segment"]["all"]["current"], 2)
        self.assertGreaterEqual(now["gvmm"]["create_calls"], 2)
        for address, size in zip(held, (1000, 3 * MIB, 5 * MIB)):
            self.pool.free(address, size)
        end = _picture.memory_stats(self.pool.stats(), _picture.totals(base))
        self.assertEqual(end["allocation"]["all"]["freed"], 3)
        self.assertEqual(end["allocated_bytes"]["all"]["peak"] >= 1024 + 8 * MIB, True)
        _lib.call("gvmm_pool_reset_peaks", self.pool.pool)
        self.assertEqual(self.pool.stats().all.allocated_bytes.peak, self.pool.stats().all.allocated_bytes.current)

    def test_a_device_is_asked_once_and_sums_and_peaks_can_be_reset(self):
        pools = _pools.Pools("gvmm_torch_pool", lambda: 1, lambda _: 256 * MIB)
        self.assertEqual([pool.value for pool in pools.all()], [pools.pool(0).value])
        held = self.pool.alloc(3 * MIB)
        before = pools.stats(0)["allocation"]["all"]
        self.assertGreaterEqual(before["allocated"], 1)
        self.pool.free(held, 3 * MIB)
        pools.reset_peaks(0)
        pools.reset_accumulated(0)
        after = pools.stats(0)["allocation"]["all"]
        self.assertEqual((after["current"], after["peak"]), (before["current"] - 1,) * 2)
        self.assertEqual((after["allocated"], after["freed"]), (0, 0))
        pools.trim()
        self.assertEqual(pools.fraction(0), 1.0)
        self.assertEqual(pools.snapshot(None, False)["device_traces"], [[]])

    def test_the_figures_have_the_names_that_pytorchs_summary_reads(self):
        figures = _picture.memory_stats(self.pool.stats())
        split = "allocated_bytes active_bytes requested_bytes reserved_bytes inactive_split_bytes allocation active segment inactive_split"
        for name in split.split():
            for part in ("all", "large_pool", "small_pool"):
                self.assertEqual(set(figures[name][part]), {"current", "peak", "allocated", "freed"}, name)
        for name in ("oversize_allocations", "oversize_segments"):
            self.assertEqual(set(figures[name]), {"current", "peak", "allocated", "freed"}, name)
        self.assertLessEqual({"num_ooms", "num_alloc_retries"}, set(figures))

    def test_a_failure_says_who_holds_what_and_a_fraction_is_checked(self):
        held = self.pool.alloc(150 * MIB)
        self.assertIsNone(self.pool.alloc(130 * MIB))
        self.assertIn("130 MiB asked", _lib.last_error())
        with self.assertRaises(gvmm.Error):
            _lib.call("gvmm_pool_set_fraction", self.pool.pool, 0.1)
        self.assertEqual(self.pool.stats().out_of_memory, 1)
        self.pool.free(held, 150 * MIB)

    def walked_back(self, snapshot):
        """The blocks that wait for a stream at some time, by the viewer's rules: it goes back from what there is at the end,
        takes a request and a completed free side by side for one, and stops where the block of a request is unknown."""
        blocks = {b["address"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"}
        waiting, trace = set(), snapshot["device_traces"][0]
        for i in reversed(range(len(trace))):
            action, address = trace[i]["action"], trace[i]["addr"]
            if action == "free_completed":
                blocks.add(address)
                if (trace[i - 1]["action"], trace[i - 1]["addr"]) != ("free_requested", address):
                    waiting.add(address)
            elif action == "free_requested":
                self.assertIn(address, blocks)
            elif action == "alloc":
                blocks.discard(address)
        return waiting

    def test_the_snapshot_is_what_pytorchs_viewer_reads(self):
        held = self.pool.alloc(2 * MIB + 5)
        ours = self.pool.snapshot()
        theirs = _picture.snapshot([ours], 2)
        self.assertEqual(set(theirs), {"segments", "device_traces", "allocator_settings", "external_annotations"})
        self.assertEqual(len(theirs["device_traces"]), 2)
        blocks = [block for segment in theirs["segments"] for block in segment["blocks"]]
        mine = [block for block in blocks if block["address"] == held]
        self.assertEqual([(b["state"], b["requested_size"]) for b in mine], [("active_allocated", 2 * MIB + 5)])
        for segment in theirs["segments"]:
            self.assertEqual(segment["total_size"], sum(block["size"] for block in segment["blocks"]))
            self.assertEqual(segment["blocks"][0]["address"], segment["address"])
            self.assertIn(segment["segment_type"], ("small", "large"))
        last = [entry for entry in theirs["device_traces"][0] if entry["action"] == "alloc"][-1]
        self.assertEqual((last["addr"], last["size"]), (held, 2 * MIB + 5))
        times = [entry["time_us"] for entry in theirs["device_traces"][0]]
        self.assertEqual(times, sorted(times))
        self.assertEqual(self.walked_back(theirs), set(), "blocks that the viewer would show as waiting for a stream")
        self.assertEqual(_picture.snapshot([ours], 1, (7, 9))["segments"], [])
        self.assertEqual(_picture.snapshot([ours], 1, traces=False)["device_traces"], [[]])
        self.pool.free(held, 2 * MIB + 5)


class Snapshots(unittest.TestCase):
    """From a snapshot that is written down."""

    OURS = {
        "device": 1,
        "segments": [
            {"address": 4096, "size": 3072, "large": False, "stream": None, "pool": [0, 5], "blocks": [
                {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated"},
                {"address": 5120, "size": 512, "requested_size": 500, "state": "active_pending_free"},
                {"address": 5632, "size": 1536, "requested_size": 0, "state": "inactive"},
            ]},
        ],
        "events": [{"number": 3, "action": "oom", "address": 0, "size": 9, "stream": 77, "pool": [0, 0]}],
    }  # fmt: skip

    def test_sums_states_and_pools(self):
        segment = _picture.snapshot([self.OURS], 0)["segments"][0]
        sums = [segment[key] for key in ("total_size", "allocated_size", "active_size", "requested_size")]
        self.assertEqual(sums, [3072, 1024, 1536, 1000])
        named = (segment["device"], segment["stream"], segment["segment_pool_id"], segment["segment_type"])
        self.assertEqual(named, (1, 0, (0, 5), "small"))
        self.assertEqual([b["state"] for b in segment["blocks"]], ["active_allocated", "active_pending_free", "inactive"])

    def test_a_free_that_nobody_held_up_was_requested_when_it_was_done(self):
        event = lambda number, action, address: {  # noqa: E731
            "number": number, "action": action, "address": address, "size": 512, "stream": None, "pool": [0, 0],
        }  # fmt: skip
        events = [event(0, "alloc", 512), event(1, "alloc", 1024), event(2, "free_requested", 512)]
        events += [event(3, "free_completed", 1024), event(4, "free_completed", 512), event(5, "free_completed", 512)]
        shown = _picture.snapshot([{"device": 0, "segments": [], "events": events}], 1)["device_traces"][0]
        # What the viewer makes of it: these two side by side are a free, and a completed one alone was waited for.
        self.assertEqual(
            [(entry["action"], entry["addr"]) for entry in shown[2:]],
            [("free_requested", 512), ("free_requested", 1024), ("free_completed", 1024), ("free_completed", 512)]
            + [("free_requested", 512), ("free_completed", 512)],
        )
        times = [entry["time_us"] for entry in shown]
        self.assertEqual(times, sorted(times))

    def test_events_go_to_their_device(self):
        traces = _picture.snapshot([self.OURS], 1)["device_traces"]
        self.assertEqual([len(trace) for trace in traces], [0, 1])
        self.assertEqual((traces[1][0]["action"], traces[1][0]["stream"], traces[1][0]["device_free"]), ("oom", 77, 0))


class Config(unittest.TestCase):
    def test_keys_and_values(self):
        self.assertEqual(
            _config.split("a:1, b:[256:1,512:2] ,c:x"), {"a": "1", "b": "[256:1,512:2]", "c": "x"}
        )
        self.assertEqual((_config.split(""), _config.split(",,"), _config.split("lonely")), ({}, {}, {"lonely": ""}))

    def test_what_means_something_here_is_taken(self):
        found = _config.parse("expandable_segments:True,per_process_memory_fraction:0.5,large_segment_size_mb:33,backend:native")
        self.assertEqual((found.fraction, found.large_chunk, found.ignored), (0.5, 32 * MIB, []))

    def test_what_is_elsewhere_is_not_named(self):
        found = _config.parse("pinned_use_background_threads:True,pinned_num_register_threads:8,release_lock_on_cudamalloc:True")
        self.assertEqual(found.ignored, [])

    def test_the_rest_is_named_as_it_was_written(self):
        text = "max_split_size_mb:128,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,>:2],backend:cudaMallocAsync"
        self.assertEqual(",".join(_config.parse(text).ignored), text)
        wrong = "expandable_segments:False,per_process_memory_fraction:1.5,large_segment_size_mb:x,new_key:1"
        found = _config.parse(wrong)
        self.assertEqual((",".join(found.ignored), found.fraction, found.large_chunk), (wrong, None, None))

    def test_peers_are_those_that_the_library_would_take(self):
        self.assertEqual([_config.mask(text) for text in ("none", "all", "0, 3", "63")], [0, 2**64 - 1, 9, 1 << 63])
        self.assertEqual([_config.mask(text) for text in ("", "64", "-1", "1,,2", "some", "1;2", "²")], [None] * 7)
        self.assertEqual([_config.readers(peers) for peers in ("all", [0, 2], [])], ["all", "0,2", "none"])
        for wrong in ("every", [64], [-1]):
            self.assertRaises(ValueError, _config.readers, wrong)

    def test_limits_that_are_none_are_refused(self):
        self.assertEqual(_config.limits(None, 0), {})
        self.assertEqual(_config.limits(1 << 30, 7), {"GVMM_POOL_LIMIT": str(1 << 30), "GVMM_POOL_HISTORY": "7"})
        for wrong in ((0, 0), (-5, 0), (None, -1)):
            self.assertRaises(ValueError, _config.limits, *wrong)

    def test_the_first_variable_that_is_set_counts(self):
        kept = {name: os.environ.pop(name, None) for name in _config.VARIABLES}
        try:
            self.assertEqual(_config.from_environment()[0], "PYTORCH_ALLOC_CONF")
            os.environ["PYTORCH_HIP_ALLOC_CONF"] = "a:1"
            self.assertEqual(_config.from_environment()[1].ignored, ["a:1"])
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "b:1"
            self.assertEqual(_config.from_environment()[0], "PYTORCH_CUDA_ALLOC_CONF")
        finally:
            for name, value in kept.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


class Compiler(unittest.TestCase):
    """The shim's compiler, with a source of this test's own in place of PyTorch's headers."""

    SOURCE = "#include <stdexcept>\nextern \"C\" void fail() { throw std::runtime_error(std::to_string(1)); }\n"

    def setUp(self):
        if not _compile.compilers():
            self.skipTest("there is no C++ compiler")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        place = Path(self.folder.name)
        (place / "source.cc").write_text("#include <string>\n" + self.SOURCE)
        native = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=1)
        self.torch = types.SimpleNamespace(__file__=str(place / "torch/__init__.py"), __version__="0", _C=native)
        kept = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = self.folder.name
        self.addCleanup(lambda: os.environ.pop("XDG_CACHE_HOME") if kept is None else os.environ.update(XDG_CACHE_HOME=kept))

    def build(self, *options):
        return _compile._build(self.torch, Path(self.folder.name) / "source.cc", list(options), [])

    def test_it_is_compiled_once(self):
        first, said = self.build()
        self.assertTrue(first, said)
        stamp = os.stat(first).st_mtime_ns
        self.assertEqual((self.build()[0], os.stat(first).st_mtime_ns), (first, stamp))
        self.assertEqual(sorted(path.suffix for path in Path(first).parent.iterdir()), [".so"])

    def test_a_failure_says_what_the_compiler_said(self):
        built, said = self.build("-DSTRANGE", "-no-such-option-of-gvmm")
        self.assertIsNone(built)
        self.assertIn("no-such-option-of-gvmm", said)

    def test_a_library_with_a_cpp_library_of_its_own_is_refused(self):
        with unittest.mock.patch.object(_compile, "_cpp_library", return_value=[]):
            built, said = self.build("-static-libstdc++")
        self.assertIsNone(built)
        self.assertIn("statically", said)

    def test_the_cpp_library_of_the_process_is_linked_whatever_the_compiler_would_link(self):
        try:
            for name in ("libgcc_s.so.1", "libstdc++.so.6"):
                ctypes.CDLL(name)
        except OSError:
            self.skipTest("there is no C++ library")
        built, said = self.build("-static-libstdc++", "-static-libgcc")
        self.assertTrue(built, said)
        ctypes.CDLL(built)


class Xpu(unittest.TestCase):
    """`gvmm.xpu` beside a stand-in for PyTorch, each time in a process of its own."""

    TORCH = """
import sys, types, os
made = []
class Allocator:
    def __init__(self, *names): self.names = names
    def allocator(self): return self
memory = types.SimpleNamespace(XPUPluggableAllocator=Allocator, change_current_allocator=made.append)
torch = types.ModuleType("torch")
torch.__file__, torch.__version__ = "/nowhere/lib/python3/site-packages/torch/__init__.py", "2.11.0+xpu"
torch._C = types.SimpleNamespace(_xpu_emptyCache=None, _xpu_memoryStats=None, _xpu_memorySnapshot=None)
torch.xpu = types.SimpleNamespace(memory=memory, MemPool=lambda *a, **o: (a, o), is_initialized=lambda: False, device_count=lambda: 2)
sys.modules["torch"] = torch
import gvmm.xpu
gvmm.xpu.sycl_headers = lambda: None
"""

    def run_code(self, code):
        env = {key: value for key, value in os.environ.items() if key not in ("GVMM_XPU_STREAMS", "GVMM_POOL_LIMIT")}
        env["PYTHONPATH"] = str(HERE.parent)
        done = subprocess.run([sys.executable, "-c", self.TORCH + code], capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def test_a_pool_of_pytorchs_has_our_functions_for_any_stream(self):
        code = """
(allocator,), options = gvmm.xpu.mem_pool(limit=1 << 30, use_on_oom=False)
print(*allocator.names[1:], options, os.environ["GVMM_XPU_STREAMS"], os.environ["GVMM_POOL_LIMIT"])
print(gvmm.xpu.mem_pool()[0][0] is allocator, allocator.names[0] == gvmm.path(), gvmm.xpu.is_enabled())
for late in (lambda: gvmm.xpu.mem_pool(limit=1 << 20), lambda: gvmm.xpu.enable()):
    try: late()
    except RuntimeError as error: print(error)
"""
        said = self.run_code(code)
        self.assertEqual(said[0], f"gvmm_xpu_alloc gvmm_xpu_free {{'use_on_oom': False}} any {1 << 30}")
        self.assertEqual(said[1], "True True False")
        self.assertIn("too late for GVMM_POOL_LIMIT", said[2])
        self.assertIn("pip install intel-sycl-rt", said[3])

    def test_without_the_shim_it_refuses_or_one_stream_allocates(self):
        code = """
try: gvmm.xpu.enable()
except RuntimeError as error: print(error, made)
gvmm.xpu.enable(allow_unchecked_out_of_memory=True)
gvmm.xpu.enable()
print(made[0].names[1:], len(made), os.environ["GVMM_XPU_STREAMS"], gvmm.xpu.is_enabled())
torch._C._xpu_emptyCache()
print(torch._C._xpu_memoryStats(0)["reserved_bytes"]["all"]["current"], torch._C._xpu_memorySnapshot(None)["segments"])
try: gvmm.xpu.mem_pool()
except RuntimeError as error: print(error)
"""
        said = self.run_code(code)
        self.assertIn("gvmm.xpu.mem_pool() needs no compiler", said[0])
        self.assertTrue(said[0].endswith("[]"), said[0])
        self.assertEqual(said[1], "('gvmm_xpu_alloc', 'gvmm_xpu_free') 1 one True")
        self.assertEqual(said[2], "0 []")
        self.assertIn("no MemPool beside that", said[3])


class Wheel(unittest.TestCase):
    def test_the_wheel_holds_the_package_and_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "GVMM_WHEEL_LIBRARY": _lib.path()}
            command = [sys.executable, str(HERE.parent / "backend.py"), folder]
            wheel = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()
            with zipfile.ZipFile(wheel) as archive:
                names = set(archive.namelist())
                self.assertIsNone(archive.testzip())
                archive.extractall(folder)
            self.assertLessEqual({"gvmm/__init__.py", "gvmm/torch.py", "gvmm/xpu.py", "gvmm/_shim.cc", "gvmm/_xpu_shim.cc", "gvmm/libgvmm.so.0"}, names)
            env = {key: value for key, value in env.items() if key != "GVMM_LIBRARY"}
            code = "import gvmm; print(gvmm.path()); gvmm.lib()"
            done = subprocess.run(
                [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/", env={**env, "PYTHONPATH": folder}
            )
            self.assertEqual(done.stdout.strip(), str(Path(folder).resolve() / "gvmm/libgvmm.so.0"))


if __name__ == "__main__":
    unittest.main()
