# `make demo` runs the recorded training run through the library, from C, on the host driver.
#
# PROFILE=dev builds without optimisation. CC, CARGO and CARGO_TARGET_DIR may be set.

CARGO ?= cargo
CC ?= cc
PROFILE ?= release
TRACE ?= llama_donate

TARGET := $(or $(CARGO_TARGET_DIR),target)
LIBDIR := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
CFLAGS ?= -O2
C_WARNINGS := -std=c11 -Wall -Wextra -Wpedantic -Werror
C_LINK := -L$(LIBDIR) -lgvmm -Wl,-rpath,$(abspath $(LIBDIR))
STEP_LOOP := c_examples/step_loop.c c_examples/trace.c c_examples/pattern.c c_examples/cost.c
RECORDING := $(TARGET)/$(TRACE).csv

# The dependency check; built once from the registry where it is not installed.
DENY_VERSION := 0.20.2
TOOLS := $(abspath $(TARGET))/tools

.PHONY: all preload demo examples pool_pair recording library wheel test lint oracle deny miri fuzz bless bench clean

all: library

# The program is linked to the soname, which cargo does not make.
library:
	$(CARGO) build --package gvmm --lib --profile $(PROFILE)
	ln -sf libgvmm.so $(LIBDIR)/libgvmm.so.0

# The Python package with the library in it; needs nothing but Python.
wheel: library
	GVMM_WHEEL_LIBRARY=$(abspath $(LIBDIR))/libgvmm.so python3 python/backend.py $(TARGET)/wheel

# What is preloaded in front of a driver (docs/preload.md).
preload:
	$(CARGO) build --package gvmm-preload-cuda --package gvmm-preload-hip --profile $(PROFILE)

demo: $(LIBDIR)/step_loop $(RECORDING)
	$(LIBDIR)/step_loop $(RECORDING)

recording: $(RECORDING)

examples: $(LIBDIR)/first $(LIBDIR)/pool $(LIBDIR)/shadow_copy $(LIBDIR)/step_loop

$(LIBDIR)/step_loop: $(STEP_LOOP) c_examples/trace.h c_examples/pattern.h c_examples/cost.h include/gvmm.h | library
	$(CC) $(C_WARNINGS) $(CFLAGS) -Iinclude $(STEP_LOOP) $(C_LINK) -o $@

$(LIBDIR)/%: c_examples/%.c include/gvmm.h | library
	$(CC) $(C_WARNINGS) $(CFLAGS) -Iinclude $< $(C_LINK) -o $@

# What a pair of alloc and free costs through the C ABI.
pool_pair: $(LIBDIR)/pool_pair
$(LIBDIR)/pool_pair: benches/pool_pair.c include/gvmm.h | library
	$(CC) $(C_WARNINGS) $(CFLAGS) -Iinclude $< $(C_LINK) -pthread -o $@

$(RECORDING): tests/data/steps/$(TRACE).csv.gz | library
	gzip -dc $< > $@.part
	mv $@.part $@

# Everything that a change must pass. A check that cannot run here is printed as skipped; GVMM_NO_SKIP=1 turns
# skips into failures.
test: lint oracle
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory deny miri

# Our HIP tables against the bindings that the crate hip-runtime-sys has committed. Its build script asks only whether
# HIP's header is there, and with no feature of its own reads nothing of it: an empty one will do, on any machine.
HIP_STUB := $(abspath $(TARGET))/hip
oracle:
	@mkdir -p $(HIP_STUB)/include/hip && : > $(HIP_STUB)/include/hip/hip_runtime_api.h
	HIP_PATH=$(HIP_STUB) $(CARGO) check --package gvmm --lib --features hip-runtime-sys

# The deciding parts under Miri, where a nightly toolchain has it or can get it. Property tests read where they are, and
# a few cases each must do: Miri is slow, too slow for plans against
# exhaustive search and for a pool's random life.
miri:
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1 \
	    || rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1; then \
	    MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=8 $(CARGO) +nightly miri test --lib -- rebind::plan rebind::choice::flow rebind::churn rebind::cost rebind::exchange \
	        rebind::profile::figure rebind::threshold rebind::slot rebind::ids rebind::table rebind::overlap rebind::free_list \
	        pool::free_index pool::heap pool::reclaim pool::size_class pool::uses vm::remap vm::quick capi::stripes units \
	        --skip pool::heap::tests::random_acts; \
	else echo "skipped: Miri: no nightly toolchain has it here"; test -z "$(GVMM_NO_SKIP)"; fi

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet --document-private-items

deny:
	@PATH="$(TOOLS)/bin:$$PATH"; \
	$(CARGO) deny --version >/dev/null 2>&1 || \
	    $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --quiet --root $(TOOLS) || \
	    { echo "skipped: dependencies and licences: cargo-deny cannot be installed here"; \
	      test -z "$(GVMM_NO_SKIP)"; exit $$?; }; \
	$(CARGO) deny check --show-stats licenses bans sources

# What is read of strangers' bytes (variables, profiles, plans), under libFuzzer; built once from the registry where it is
# not installed.
FUZZ_VERSION := 0.13.2
FUZZ_SECONDS ?= 60
fuzz:
	@export PATH="$(TOOLS)/bin:$$PATH"; \
	{ $(CARGO) +nightly fuzz --version >/dev/null 2>&1 || \
	    $(CARGO) install cargo-fuzz --version $(FUZZ_VERSION) --locked --quiet --root $(TOOLS); } && \
	$(CARGO) +nightly --version >/dev/null 2>&1 || \
	    { echo "skipped: fuzzing: no nightly toolchain or no cargo-fuzz here"; test -z "$(GVMM_NO_SKIP)"; exit $$?; }; \
	for target in config plan profile; do \
	    $(CARGO) +nightly fuzz run --target-dir $(abspath $(TARGET))/fuzz $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

# Writes the header, the export list and the layouts anew, on purpose.
bless:
	GVMM_BLESS=1 $(CARGO) test --test header --test ffi

bench:
	$(CARGO) bench --package gvmm

clean:
	$(CARGO) clean
