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

.PHONY: all demo examples recording library test lint bench clean

all: library

# The program is linked to the soname, which cargo does not make.
library:
	$(CARGO) build --package gvmm --lib --profile $(PROFILE)
	ln -sf libgvmm.so $(LIBDIR)/libgvmm.so.0

demo: $(LIBDIR)/step_loop $(RECORDING)
	$(LIBDIR)/step_loop $(RECORDING)

recording: $(RECORDING)

examples: $(LIBDIR)/first $(LIBDIR)/shadow_copy $(LIBDIR)/step_loop

$(LIBDIR)/step_loop: $(STEP_LOOP) c_examples/trace.h c_examples/pattern.h c_examples/cost.h include/gvmm.h | library
	$(CC) $(C_WARNINGS) $(CFLAGS) -Iinclude $(STEP_LOOP) $(C_LINK) -o $@

$(LIBDIR)/%: c_examples/%.c include/gvmm.h | library
	$(CC) $(C_WARNINGS) $(CFLAGS) -Iinclude $< $(C_LINK) -o $@

$(RECORDING): tests/data/steps/$(TRACE).csv.gz | library
	gzip -dc $< > $@.part
	mv $@.part $@

test:
	$(CARGO) test --workspace

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

bench:
	$(CARGO) bench --package gvmm

clean:
	$(CARGO) clean
