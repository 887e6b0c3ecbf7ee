#!/usr/bin/env bash
# Makes src/driver/cuda/copy_old.ptx and copy_new.ptx from src/driver/cuda/copy.cu and route.cu, and cli/src/cuda/step.ptx from
# cli/src/cuda/step.cu, by NVRTC 12.1 from the Python package nvidia-cuda-nvrtc-cu12 (no GPU, no toolkit). `--check` compares with what is committed instead, and
# assembles both for several architectures where `ptxas` is found (in PATH, or as the variable PTXAS).
#
# The old text targets sm_50 and PTX 7.0 (CUDA 11.0); NVRTC writes a newer version line than its instructions
# need, so the line is lowered. The new text targets sm_70 and PTX 8.1, the first with 32,764 bytes of parameters.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

nvrtc=${NVRTC:-}
if [ -z "$nvrtc" ]; then
    python3 -m pip install -q --no-deps --target "$work/site" nvidia-cuda-nvrtc-cu12==12.1.105
    nvrtc=$work/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12
fi

compile() { # compile SOURCE OUTPUT OPTION...
    python3 - "$nvrtc" "$@" <<'PYTHON'
import ctypes, os, sys
library, source, output, *options = sys.argv[1:]
folder = os.path.dirname(library)
# NVRTC opens its built-ins by name; loading them first spares a search path.
for name in sorted(os.listdir(folder)):
    if name.startswith("libnvrtc-builtins"):
        ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
nvrtc = ctypes.CDLL(library)
program = ctypes.c_void_p()
text = open(source, "rb").read()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, os.path.basename(source).encode(), 0, None, None) == 0
arguments = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
status = nvrtc.nvrtcCompileProgram(program, len(options), arguments)
size = ctypes.c_size_t()
nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetProgramLog(program, log)
if log.value.strip():
    sys.stderr.write(log.value.decode() + "\n")
assert status == 0, f"nvrtcCompileProgram: {status}"
nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
ptx = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetPTX(program, ptx)
open(output, "wb").write(ptx.value)
PYTHON
}

# Without the compiler's banner (its lines name a build) and without its unused constants for `nv::target`.
clean() { # clean FROM TO VERSION SOURCE HEADING
    { printf '// %s\n// Made by scripts/build_ptx.sh from %s; do not edit.\n\n' "$5" "$4"
      sed -e '/^\/\//d' -e '/^\.global .*nv6target/d' -e "s/^\.version .*/.version $3/" "$1" | sed '/./,$!d'; } >"$2"
}

library=src/driver/cuda
program=cli/src/cuda
compile $program/step.cu "$work/step.raw" --gpu-architecture=compute_50 --std=c++14
cat $library/copy.cu $library/route.cu >"$work/copy.cu"
compile "$work/copy.cu" "$work/old.raw" --gpu-architecture=compute_50 --std=c++14
compile "$work/copy.cu" "$work/new.raw" --gpu-architecture=compute_70 --std=c++14 -DGVMM_LARGE_PARAMETERS
clean "$work/old.raw" "$work/copy_old.ptx" 7.0 "copy.cu and route.cu" "Joint copies for CUDA 11.0 and sm_50 or later: up to 170 slices a launch, 508 of a route."
clean "$work/new.raw" "$work/copy_new.ptx" 8.1 "copy.cu and route.cu" "Joint copies for CUDA 12.1 and sm_70 or later: up to 1,364 slices a launch, 4,092 of a route."
clean "$work/step.raw" "$work/step.ptx" 7.0 step.cu "The command buffer of gvmm steps, for CUDA 11.0 and sm_50 or later."

ptxas=${PTXAS:-$(command -v ptxas || true)}
if [ -n "$ptxas" ]; then
    for arch in ${OLD_ARCHS:-sm_50 sm_75 sm_90}; do "$ptxas" -arch="$arch" -v -o /dev/null "$work/copy_old.ptx"; done
    for arch in ${OLD_ARCHS:-sm_50 sm_75 sm_90}; do "$ptxas" -arch="$arch" -v -o /dev/null "$work/step.ptx"; done
    for arch in ${NEW_ARCHS:-sm_70 sm_80 sm_90}; do "$ptxas" -arch="$arch" -v -o /dev/null "$work/copy_new.ptx"; done
else
    echo "skipped: no ptxas, so the texts were not assembled"
fi

for text in $library/copy_old.ptx $library/copy_new.ptx $program/step.ptx; do
    if [ "${1:-}" = --check ]; then
        cmp "$work/$(basename $text)" $text
    else
        cp "$work/$(basename $text)" $text
    fi
done
