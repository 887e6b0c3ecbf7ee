#!/usr/bin/env bash
# Tries the functions for Intel GPUs (gvmm_xpu_...) beside the real SYCL runtime: what it exports, how its objects are passed, what
# is answered for queues that are not of Level Zero; with an Intel GPU also that our memory is of use on it.
#
#   scripts/sycl_check.sh              with the runtime and headers that python3 (or PYTHON) has: pip install intel-sycl-rt
#   scripts/sycl_check.sh --install    with those of PyPI, of the two known versions, installed below target/sycl (1 GB each)
#
# `intel-opencl-rt` beside it makes the processor a device, so that there is a queue to ask. Where PyTorch's headers are too,
# the types of its allocator are compared, and the Python module's C++ shim is compiled, linked to stand-ins for PyTorch's libraries,
# loaded and called. The library is GVMM_LIBRARY_DIR's, else
# target/release's. Ends with 77 where there is no runtime.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1:-}" = --install ]; then
    for version in 2026.2.0 2025.3.1; do
        home=${CARGO_TARGET_DIR:-target}/sycl/$version
        if [ ! -x "$home/bin/python" ]; then
            "$python" -m venv "$home"
            "$home/bin/python" -m pip install -q "intel-sycl-rt==$version" "intel-opencl-rt==$version"
        fi
        PYTHON=$home/bin/python TORCH_PYTHON=$python bash scripts/sycl_check.sh
    done
    exit 0
fi

prefix=$("$python" -c 'import sys; print(sys.prefix)')
if [ ! -e "$prefix/include/sycl/sycl.hpp" ] || [ ! -e "$prefix/lib/libsycl.so" ]; then
    echo "there is no SYCL runtime in $prefix: pip install intel-sycl-rt, or call this with --install"
    exit 77
fi

folder=${GVMM_LIBRARY_DIR:-target/release}
cp "$folder/libgvmm.so" "$work/libgvmm.so.0"
ln -s libgvmm.so.0 "$work/libgvmm.so"
c++ -std=c++17 -O1 -Wall -Iinclude -isystem "$prefix/include" ffi_tests/xpu_sycl.cc -L"$work" -lgvmm -L"$prefix/lib" -lsycl \
    -Wl,-rpath,"$work" -Wl,-rpath,"$prefix/lib" -Wl,-rpath-link,"$prefix/lib" -o "$work/check"
export LD_LIBRARY_PATH="$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -e "$prefix/lib/libintelocl.so" ]; then export OCL_ICD_FILENAMES="$prefix/lib/libintelocl.so"; fi
"$work/check"

find='import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0] + "/include")'
torch=$("${TORCH_PYTHON:-$python}" -c "$find" 2>/dev/null || true)
if [ ! -e "$torch/torch/csrc/xpu/XPUPluggableAllocator.h" ]; then
    echo "skipped: PyTorch's types, whose headers are not here"
    exit 0
fi
# A PyTorch that was built without Intel's GPUs lacks one header that its build writes, and the libraries: ours stand in for those,
# in a folder that looks like PyTorch's.
home=$work/torch
mkdir -p "$home/lib"
cp -rs "$torch" "$home/include"
if [ ! -e "$home/include/c10/xpu/impl/xpu_cmake_macros.h" ]; then
    echo '#define C10_XPU_BUILD_SHARED_LIBS' > "$home/include/c10/xpu/impl/xpu_cmake_macros.h"
fi
c++ -std=c++20 -fsyntax-only -DGVMM_XPU_HEADERS -Iinclude -isystem "$home/include" -isystem "$prefix/include" ffi_tests/xpu_hooks.cc
echo "PyTorch's headers: its allocator has our types"

cp "$torch"/../lib/libc10.so "$home/lib/"
c++ -std=c++20 -O1 -shared -fPIC -isystem "$home/include" -isystem "$prefix/include" ffi_tests/fakes/fake_torch_xpu.cc \
    -L"$home/lib" -lc10 -Wl,--no-as-needed -L"$prefix/lib" -lsycl -Wl,-rpath,"$home/lib" -Wl,-soname,libtorch_xpu.so -o "$home/lib/libtorch_xpu.so"
for name in torch_python c10_xpu; do ln -s libtorch_xpu.so "$home/lib/lib$name.so"; done
touch "$home/__init__.py"
cat > "$work/enable.py" <<'END'
"""gvmm.xpu.enable beside a stand-in for PyTorch's Python side: compiles, links and loads the shim; then an allocation for no queue."""
import ctypes, os, sys, types

home = sys.argv[1]
torch = types.ModuleType("torch")
torch.__file__, torch.__version__ = home + "/__init__.py", "0+stand.in"
torch._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=1)
torch.xpu = types.SimpleNamespace(is_initialized=lambda: False, device_count=lambda: 1)
sys.modules["torch"] = torch
libraries = ctypes.CDLL(home + "/lib/libtorch_xpu.so", mode=ctypes.RTLD_GLOBAL)
import gvmm.xpu

gvmm.xpu.enable()
assert gvmm.xpu.is_enabled() and os.environ["GVMM_XPU_STREAMS"] == "any"
says = ctypes.create_string_buffer(2048)
kind = libraries.fake_tensor(ctypes.c_size_t(4096), ctypes.c_int64(0), says, ctypes.c_size_t(len(says)))
assert kind == 2 and b"NULL is no sycl::queue" in says.value, (kind, says.value)
print(gvmm.xpu._shim())
END
export PYTHONPATH=$PWD/python GVMM_LIBRARY=$work/libgvmm.so.0 XDG_CACHE_HOME=$work/cache
shim=$("$python" "$work/enable.py" "$home")
c++ -std=c++17 -O1 -Wall -Wextra -Iinclude ffi_tests/xpu_shim.cc -L"$home/lib" -ltorch_xpu -lc10 -L"$work" -lgvmm -ldl -Wl,-rpath,"$home/lib" \
    -Wl,-rpath,"$work" -Wl,-rpath-link,"$prefix/lib" -o "$work/shim_check"
"$work/shim_check" "$shim"
