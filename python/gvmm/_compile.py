"""Compiles the C++ shim against the PyTorch at hand, once for each."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "gvmm" if base else Path.home() / ".cache" / "gvmm"


def compiler() -> str | None:
    """The C++ compiler: `CXX`, else the first that is found."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in names if (found := shutil.which(name))), None)


def _try(command: list[str]) -> str | None:
    """Runs a compiler; what it says where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()[-2000:]


def shim(torch) -> str:
    """The compiled shim's path; raises `RuntimeError` where there is no compiler, or it fails."""
    source = Path(__file__).with_name("_shim.cc")
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    key = hashlib.sha256(source.read_bytes() + f"{torch.__version__} {abi}".encode()).hexdigest()[:16]
    cache = _cache()
    target = cache / f"shim-{torch.__version__}-{key}.so"
    if target.exists():
        return str(target)
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C++ compiler: install one, or name it by CXX")
    root = Path(torch.__file__).parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = Path(tempfile.mkdtemp(prefix="gvmm-"))
        target = cache / target.name
    handle, part = tempfile.mkstemp(suffix=".so", dir=cache)
    os.close(handle)
    said = None
    for standard in ("-std=c++20", "-std=c++17"):
        said = _try([
            found, standard, "-O2", "-shared", "-fPIC", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-I", str(root / "include"),
            str(source), "-L", str(root / "lib"), "-lc10", f"-Wl,-rpath,{root / 'lib'}", "-o", part,
        ])  # fmt: skip
        if said is None:
            os.replace(part, target)
            return str(target)
    os.unlink(part)
    raise RuntimeError(f"{found} cannot compile the shim against PyTorch {torch.__version__}: {said}")
