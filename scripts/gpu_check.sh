#!/usr/bin/env bash
# Runs the tests and benchmarks that need an NVIDIA GPU, from prebuilt programs, and prints a short table last.
#
#   scripts/gpu_check.sh --pack [FOLDER]     builds the programs here and puts them into FOLDER (default .gpu)
#   scripts/gpu_check.sh [FOLDER]            runs what it finds there; the GPU machine needs no Rust
#   scripts/gpu_check.sh --pool [FOLDER]     of that only what is about pools' speed: pairs, and the recordings
#
# Files named bench_* are benchmarks, gvmm is the companion program, all others are test programs. A test that is skipped
# counts as a failure; conformance checks that do not concern the device are counted as skipped, and the log names them.
# With compute-sanitizer in the path, the copies run under it too. Ends with 1 where something failed.
set -uo pipefail
cd "$(dirname "$0")/.."

# Test programs that use a GPU; of those that are about fakes too, the tests that name the GPU.
tests="cuda cuda_faults hip_on_cuda rollback model"

if [ "${1:-}" = --pack ]; then
    folder=${2:-.gpu}
    rm -rf "$folder" && mkdir -p "$folder" || exit 1
    built() { grep -o '(target[^)]*)\|([^)]*/deps/[^)]*)' | tr -d '()'; }
    set -e
    for name in $tests; do
        test=$(cargo test --release --no-run --test "$name" 2>&1 | built | tail -1)
        cp "$test" "$folder/test_$name"
    done
    cc -std=gnu11 -shared -fPIC -O1 -pthread -DPTX='"src/driver/cuda/copy_old.ptx"' ffi_tests/fakes/hip_on_cuda.c -ldl \
        -o "$folder/libhip_on_cuda.so"
    for name in cuda_copy begin_end; do
        bench=$(cargo bench --no-run --bench "$name" 2>&1 | built | tail -1)
        cp "$bench" "$folder/bench_$name"
    done
    cargo build --release --package gvmm-cli 2>&1 | tail -1
    cp "${CARGO_TARGET_DIR:-target}/release/gvmm" "$folder/gvmm"
    cargo build --release --package gvmm 2>&1 | tail -1
    cp "${CARGO_TARGET_DIR:-target}/release/libgvmm.so" "$folder/libgvmm.so.0"
    cc -std=c11 -O2 -Iinclude c_examples/cuda_graph.c "$folder/libgvmm.so.0" -ldl -Wl,-rpath,'$ORIGIN' \
        -o "$folder/cuda_graph"
    cc -std=gnu11 -O2 -Iinclude benches/pool_pair.c "$folder/libgvmm.so.0" -pthread -Wl,-rpath,'$ORIGIN' \
        -o "$folder/pool_pair"
    cc -std=gnu11 -O2 -Iinclude ffi_tests/peers.c "$folder/libgvmm.so.0" -ldl -Wl,-rpath,'$ORIGIN' -o "$folder/peers"
    c++ -std=c++17 -O2 -Iinclude c_examples/xla_step.cc "$folder/libgvmm.so.0" -ldl -Wl,-rpath,'$ORIGIN' -o "$folder/xla_step"
    strip --strip-debug "$folder"/*
    ls -l "$folder"
    exit 0
fi

only=
if [ "${1:-}" = --pool ]; then
    only=pool
    shift
fi
folder=${1:-.gpu}
logs=${OUT:-$(mktemp -d)}
failed=0
rows=()
export GVMM_NO_SKIP=1 RUST_BACKTRACE=1
# As many queues as there can be: checks let streams wait for values that other streams write later.
export CUDA_DEVICE_MAX_CONNECTIONS=32
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

# run NAME COMMAND...: shows the output, keeps it, and adds a row.
run() {
    local name=$1 log="$logs/$1.log" start=$SECONDS state=passed
    shift
    echo "== $name"
    timeout "${LIMIT:-240}" "$@" >"$log" 2>&1 || { state="FAILED ($?)"; failed=1; }
    # Conformance checks that are skipped are counted here and named in the log.
    grep -av '^skipped: .*: \|^$' "$log" | tail -n "${TAIL:-60}"
    rows+=("| $name | $state | $(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$log" | tail -1 | grep . || echo 0) | $(grep -ac '^skipped: ' "$log") | $((SECONDS - start)) s |")
}

# One number of a report, which has a key a line.
value() { sed -n "s/^ *\"$1\": \([^,]*\),*\$/\1/p" "$2"; }

# steps PROGRAM RECORDING HOW [OPTION...]: runs a recording with a graph as the command buffer, and adds a row. HOW is
# a threshold, or a plan as plan:auto.
steps() {
    local program=$1 recording=$2 how=$3 name option
    shift 3
    name=steps_${recording}_${how/:/_}$(printf '%s' "$@")
    case $how in plan:*) option=--plan ;; *) option=--threshold ;; esac
    GVMM_SHADOW_BUDGET=8G run "$name" "$program" steps "tests/data/steps/$recording.csv.gz" --driver cuda --json \
        $option "${how#plan:}" "$@"
    local log="$logs/$name.log" row="| $recording $* | $how"
    for key in map unmap set_access copy_launches copied_slots patches mismatches host_us_median driver_us_median gpu_us_median \
               host_us_median_cold driver_us_median_cold gpu_us_median_cold \
               predicted_host_us predicted_gpu_us graph_host_us_median graph_gpu_us_median; do
        row+=" | $(value "$key" "$log" | tail -1 | awk '{ printf "%.1f", $1 }')"
    done
    step_rows+=("$row |")
}
step_rows=()

# replay PROGRAM RECORDING [OPTION...]: replays a recording of an allocator, and adds a row of the last repetition.
replay() {
    local program=$1 recording=$2 name
    shift 2
    name=replay_$recording$(printf '%s' "$@")
    run "$name" "$program" replay "tests/data/alloc/$recording.csv.gz" --driver cuda --json "$@"
    local log="$logs/$name.log" row="| $recording $*" key
    for key in reserved_over_requested oom lent_chunks device_syncs create map unmap set_access driver_ms mean p50 p99 p999 canary_errors; do
        row+=" | $(value "$key" "$log" | head -1 | awk '{ printf $1 ~ /\./ ? "%.3f" : "%d", $1 }')"
    done
    replay_rows+=("$row |")
}
replay_rows=()

# compare NAME PROGRAM RECORDING... [OPTION...]: all strategies side by side; with room to copy every slot.
compare() {
    local name=$1 program=$2 arguments=()
    shift 2
    for word in "$@"; do
        case $word in llama_*) word=tests/data/steps/$word.csv.gz ;; esac
        arguments+=("$word")
    done
    LIMIT=480 TAIL=400 run "$name" env GVMM_SHADOW_BUDGET=8G "$program" bench steps --driver cuda --save "$logs/$name.json" "${arguments[@]}"
}

# pools PROGRAM: how fast they are. Without a budget, blocks lie where they fit after some repetitions.
pools() {
    local recording
    for recording in gpt2_train llama_lora_ckpt vit_multires two_stream; do
        replay "$1" $recording --repeat 12
        replay "$1" $recording --repeat 3 --budget 1.02 --lag 2000
    done
}

chmod +x "$folder"/* 2>/dev/null
for program in "$folder"/*; do
    [ -x "$program" ] && [ -f "$program" ] || continue
    name=$(basename "$program")
    case $only:$name in
        *:pool_pair) for driver in host cuda; do run "pool_pair_$driver" "$program" $driver 4; done; continue ;;
        *:gvmm) pools "$program" ;;
    esac
    [ -z "$only" ] || continue
    case $name in
        libgvmm*) # The example in Python, where there is a PyTorch.
            if python3 -c 'import torch' 2>/dev/null; then run torch_graph python3 c_examples/torch_graph.py "$program"; fi ;;
        lib*) ;;
        test_cuda_faults|test_hip_on_cuda)
            run "$name" "$program" --nocapture --test-threads 1 on_the_gpu ;;
        peers) # Both directions, two GPUs; says so where there is one.
            GVMM_TEST_PEERS=cuda run peers "$program" ;;
        bench_*|cuda_graph|xla_step) run "$name" "$program" ;;
        gvmm) run info "$program" info
              run info_json "$program" info --json
              # Access for all other GPUs too; the whole table is in the log, and what --costs reads beside it.
              LIMIT=480 TAIL=24 run bench_vmm "$program" bench vmm --driver cuda --save "$logs/bench_vmm.json"
              TAIL=60 run bench_profile "$program" bench profile --driver cuda --save "$logs/profile"
              for recording in gpt2_train llama_lora_ckpt vit_multires two_stream; do
                  replay "$program" $recording --repeat 3 --budget 1.02 --lag 2000 --canary
                  replay "$program" $recording --repeat 3 --budget 1.01 --chunk 2M
              done
              compare bench_steps "$program" llama_donate llama_donate_all llama_nodonate --loads all
              # With commands that are so large that patching pays, and by the profile measured above.
              compare bench_steps_16 "$program" llama_donate llama_donate_all llama_nodonate --slots-per-command 16
              compare bench_steps_profile "$program" llama_donate llama_nodonate --loads all --profile "$logs/profile"
              for recording in llama_donate llama_donate_all llama_nodonate; do
                  for threshold in off 4096 65536 auto; do steps "$program" $recording $threshold; done
                  # The copies are in the graph unless told otherwise.
                  steps "$program" $recording auto --copies around
                  steps "$program" $recording auto --joint off
                  for plan in auto patch; do steps "$program" $recording plan:$plan; done
                  steps "$program" $recording plan:auto --copies around
              done
              if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -gt 1 ]; then
                  for threshold in off 65536 auto; do steps "$program" llama_donate $threshold --peers 1; done
                  steps "$program" llama_donate auto --peers 1 --copies around
                  steps "$program" llama_donate auto --peers 1 --joint off
                  compare bench_steps_peer "$program" llama_donate --peers 1
              fi ;;
        test_rollback|test_model) # On CUDA's driver, and on HIP's through the library that stands on CUDA.
            for driver in cuda hip; do
                GVMM_HIP_LIBRARY=$folder/libhip_on_cuda.so GVMM_TEST_DRIVER=$driver \
                    run "${name}_$driver" "$program" --nocapture --test-threads 1 --skip on_the_fakes --skip without_ --skip whole_only
            done ;;
        *) run "$name" "$program" --nocapture --test-threads 1
           if command -v compute-sanitizer >/dev/null && [ "$name" = test_cuda ]; then
               run "${name}_sanitized" compute-sanitizer --error-exitcode 9 "$program" --nocapture \
                   --test-threads 1 copies_of_every_alignment copies_are_captured memory_moves
           fi ;;
    esac
done

echo
echo "| program | result | tests | skipped checks | time |"
echo "|---|---|---|---|---|"
if [ ${#rows[@]} -eq 0 ]; then
    echo "| nothing in $folder | FAILED | 0 | 0 | 0 s |"
    exit 1
fi
printf '%s\n' "${rows[@]}"
if [ ${#step_rows[@]} -gt 0 ]; then
    echo
    echo "| recording | threshold or plan | map | unmap | set access | copies | slots copied | patched | wrong | begin to end: host µs | of that in driver calls | GPU µs | data checked between: host µs | in driver calls | GPU µs | predicted: host µs | GPU µs | the graph alone: host µs | GPU µs |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    printf '%s\n' "${step_rows[@]}"
fi
if [ ${#replay_rows[@]} -gt 0 ]; then
    echo
    echo "| recording | reserved / requested | out of memory | lent | host waits | create | map | unmap | set access | driver ms | ns an operation: mean | p50 | p99 | p99.9 | wrong |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    printf '%s\n' "${replay_rows[@]}"
fi
exit $failed
