#!/usr/bin/env bash
# Loads the real ROCm plugin of JAX, without an AMD GPU, and shows that the loader binds its virtual-memory calls to ours.
#
#   scripts/jax_rocm_check.sh [PLUGIN.so | WHEEL.whl]     without one: the installed plugin, else the wheel from PyPI
#
# What the plugin links is played by stubs with the same sonames, names and versions, made from what it asks for. Ends with 1
# where a call does not go where it should; with 0 and a line where there is no plugin to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --package gvmm-preload-hip
exec "${PYTHON:-python3}" scripts/jax_rocm_check.py "${CARGO_TARGET_DIR:-target}/debug/libgvmm_preload_hip.so" "$@"
