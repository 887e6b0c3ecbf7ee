#!/usr/bin/env bash
# Runs the machine's own JAX with and without the library that is preloaded in front of CUDA, and prints one table last.
#
#   scripts/jax_check.sh --pack [FOLDER]     builds what is carried there (default .jax); the GPU machine needs no Rust
#   scripts/jax_check.sh [FOLDER] [OPTION..] runs it; options as of scripts/jax_check.py. Results: $OUT/jax_check.json
#
# Needs an NVIDIA GPU and a JAX with its CUDA plugin; two GPUs for the rows about peers. About six minutes at most.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = --pack ]; then
    folder=${2:-.jax}
    rm -rf "$folder" && mkdir -p "$folder"
    cargo build --release --package gvmm-cli --package gvmm-preload-cuda --package gvmm-preload-hip 2>&1 | tail -1
    built=${CARGO_TARGET_DIR:-target}/release
    cp "$built/gvmm" "$built/libgvmm_preload_cuda.so" "$built/libgvmm_preload_hip.so" "$folder"
    cc -O2 -Wall -o "$folder/overhead" preload/tests/overhead.c -ldl
    strip --strip-debug "$folder"/*
    ls -l "$folder"
    exit 0
fi

folder=.jax
if [ $# -gt 0 ] && [ -d "$1" ]; then folder=$1; shift; fi
chmod +x "$folder"/* 2>/dev/null || true
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
exec "${PYTHON:-python3}" scripts/jax_check.py --folder "$folder" "$@"
