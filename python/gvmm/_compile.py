"""Compiles the C++ shim against the PyTorch at hand, once for each."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) / "gvmm" if base else Path.home() / ".cache" / "gvmm"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="gvmm-"))
    return folder


def compilers() -> list[str]:
    """The C++ compilers that there are: `CXX` alone, or those that are found."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return [found for name in names if (found := shutil.which(name))]


def cuda_headers(torch) -> Path | None:
    """The folder of CUDA's headers, or none: the toolkit's, or those that came with PyTorch where they are complete."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    homes += [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    places = [Path(home) / "include" for home in homes if home]
    beside = Path(torch.__file__).parents[1] / "nvidia"
    places += [beside / "cu13" / "include", beside / "cuda_runtime" / "include"]
    needed = ("cuda_runtime_api.h", "crt/host_defines.h")
    return next((place for place in places if all((place / name).exists() for name in needed)), None)


def _cpp_library() -> list[str]:
    """Links the C++ library and the unwinder of this process: an exception is caught only where one serves both sides, and a compiler
    may have another, or link its own statically. Empty where there is none yet."""
    mapped = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    found = [next((path for path in sorted(mapped) if name in path), None) for name in ("/libstdc++.so.6", "/libgcc_s.so.1")]
    return ["-nodefaultlibs", *found, "-lm", "-lc", "-lgcc"] if all(found) else []


def _try(command: list[str], made: str) -> str | None:
    """Runs a compiler; what it says where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return done.stderr.strip()[-2000:]
    shared = any(name in Path(made).read_bytes() for name in (b"libstdc++.so", b"libc++.so"))
    return None if shared else "it links the C++ library statically: name another compiler by CXX"


def _build(torch, source: Path, options: list[str], libraries: list[str]) -> tuple[str | None, str]:
    """The compiled shim's path, or what the compiler said."""
    root, abi = Path(torch.__file__).parent, int(torch._C._GLIBCXX_USE_CXX11_ABI)
    made_of = source.read_bytes() + " ".join([torch.__version__, str(root), str(abi), *options]).encode()
    target = _cache() / f"shim-{torch.__version__}-{hashlib.sha256(made_of).hexdigest()[:16]}.so"
    if target.exists():
        return str(target), ""
    found = compilers()
    if not found:
        return None, "there is no C++ compiler: install one, or name it by CXX"
    # Several processes may do this at once: each its own, then moved into place.
    handle, part = tempfile.mkstemp(suffix=".so", dir=target.parent)
    os.close(handle)
    said = ""
    runtimes = [runtime for runtime in [_cpp_library()] if runtime] + [[]]
    for name, standard, runtime in itertools.product(found, ("-std=c++20", "-std=c++17"), runtimes):
        failed = _try([
            name, standard, "-O2", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", *options, "-I", str(root / "include"),
            str(source), "-L", str(root / "lib"), *libraries, f"-Wl,-rpath,{root / 'lib'}", *runtime, "-o", part,
        ], part)  # fmt: skip
        if failed is None:
            os.replace(part, target)
            return str(target), ""
        said = said or f"{name} cannot compile the shim against PyTorch {torch.__version__}: {failed}"
    os.unlink(part)
    return None, said


def shim(torch) -> tuple[str, bool]:
    """The compiled shim's path, and whether it is the full one, which needs CUDA's headers; raises `RuntimeError` where there is
    none."""
    source = Path(__file__).with_name("_shim.cc")
    headers = cuda_headers(torch) if torch.version.hip is None else None
    if headers is not None:
        full = ["-DGVMM_FULL", "-isystem", str(headers)]
        built, _ = _build(torch, source, full, ["-ltorch_cuda", "-lc10_cuda", "-lc10"])
        if built is not None:
            return built, True
    built, said = _build(torch, source, [], ["-lc10"])
    if built is None:
        raise RuntimeError(said)
    return built, False
