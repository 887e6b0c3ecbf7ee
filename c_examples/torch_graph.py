"""PyTorch's CUDA graph with gvmm's copies: the static inputs and results of a captured graph are slots, so a step copies all
inputs by one launch and all results by another, instead of one copy for each tensor. No allocator is changed and nothing
is mapped. Needs a PyTorch with CUDA; from the top folder:

    cargo build --release
    python3 c_examples/torch_graph.py [LIBRARY]

LIBRARY is libgvmm.so [target/release/libgvmm.so]. Prints the copies' launches and times a step, side by side, and ends with 1
where a result is not equal bit for bit.
"""

import ctypes
import statistics
import sys
import time

import torch

RECORD_AGAIN, DRIVER_CUDA, SLOT_FOREIGN, IN, OUT = 1, 1, 2, 1, 2


class DeviceDesc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("driver", ctypes.c_uint32), ("ordinal", ctypes.c_uint32)]


class Slot(ctypes.Structure):
    _fields_ = [("size_bytes", ctypes.c_uint64), ("direction", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("alignment_bytes", ctypes.c_uint64), ("memory_space", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("shadow_address", ctypes.c_uint64)]


class Buffer(ctypes.Structure):
    _fields_ = [("address", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64), ("allocation_id", ctypes.c_uint64),
                ("block", ctypes.c_void_p)]


class Report(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("generation", ctypes.c_uint64), ("changed_slots", ctypes.c_uint64),
                ("remapped_slots", ctypes.c_uint64), ("copied_slots", ctypes.c_uint64), ("copied_bytes", ctypes.c_uint64),
                ("copy_launches", ctypes.c_uint64)]


class Binder:
    """A captured graph with its static tensors, bound to other tensors in each step."""

    def __init__(self, library, graph, inputs, results):
        self.gvmm = ctypes.CDLL(library)
        self.graph, self.count = graph, len(inputs) + len(results)
        # What is empty has nothing to copy, and no address.
        self.used = [i for i, t in enumerate([*inputs, *results]) if t.nbytes]
        self.static = [[*inputs, *results][i] for i in self.used]
        self.device, self.binding = ctypes.c_void_p(), ctypes.c_void_p()
        ordinal = self.static[0].device.index
        desc = DeviceDesc(ctypes.sizeof(DeviceDesc), DRIVER_CUDA, ordinal)
        self.call("gvmm_device_open", ctypes.byref(desc), ctypes.byref(self.device))
        slots = (Slot * len(self.static))(*(
            Slot(t.nbytes, IN if i < len(inputs) else OUT, SLOT_FOREIGN, 1, 0, 0, t.data_ptr())
            for i, t in zip(self.used, self.static)))
        self.call("gvmm_binding_create", self.device, None, slots, ctypes.c_size_t(len(slots)),
                  ctypes.c_size_t(ctypes.sizeof(Slot)), ctypes.byref(self.binding))
        self.generation, self.buffers = ctypes.c_uint64(0), (Buffer * len(slots))()
        self.begun, self.ended = (Report(ctypes.sizeof(Report)) for _ in range(2))

    def call(self, name, *arguments, may=()):
        status = getattr(self.gvmm, name)(*arguments)
        if status != 0 and status not in may:
            message, needed = ctypes.create_string_buffer(512), ctypes.c_size_t()
            self.gvmm.gvmm_last_error_message(message, ctypes.c_size_t(512), ctypes.byref(needed))
            raise RuntimeError(f"{name}: {status}: {message.value.decode()}")
        return status

    def bind(self, tensors):
        """This step's tensors, contiguous and as large as the static ones. They live until the step has run."""
        if len(tensors) != self.count:
            raise ValueError(f"{self.count} tensors are needed, not {len(tensors)}")
        tensors = [tensors[i] for i in self.used]
        for i, tensor, static in zip(self.used, tensors, self.static):
            if tensor.nbytes != static.nbytes or tensor.device != static.device or not tensor.is_contiguous():
                raise ValueError(f"tensor {i} is not contiguous, of {static.nbytes} bytes, on {static.device}")
        for buffer, tensor in zip(self.buffers, tensors):
            # The address tells everything here: nothing of a static copy depends on who allocated it.
            buffer.address, buffer.size_bytes, buffer.allocation_id = tensor.data_ptr(), tensor.nbytes, tensor.data_ptr()

    def replay(self):
        """Copies in, launches the graph, copies out, on the current stream; gives the launches of copies."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        count, stride = ctypes.c_size_t(len(self.buffers)), ctypes.c_size_t(ctypes.sizeof(Buffer))
        while self.call("gvmm_binding_begin", self.binding, stream, self.buffers, count, stride, self.generation,
                        ctypes.byref(self.begun), may=(RECORD_AGAIN,)) == RECORD_AGAIN:
            # Once. The addresses are the static tensors', so the graph stays as it is.
            addresses = (ctypes.c_uint64 * len(self.buffers))()
            self.call("gvmm_binding_addresses", self.binding, addresses, count, ctypes.byref(self.generation))
            assert list(addresses) == [t.data_ptr() for t in self.static]
        self.graph.replay()
        self.call("gvmm_binding_end", self.binding, ctypes.byref(self.ended))
        return self.begun.copy_launches + self.ended.copy_launches

    def close(self):
        torch.cuda.synchronize()
        self.call("gvmm_binding_destroy", self.binding)
        self.call("gvmm_device_close", self.device)


def timed(step, rounds=200):
    """Host and whole time of a step in µs: medians."""
    host, whole = [], []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        host.append((returned - start) * 1e6)
        whole.append((time.perf_counter() - start) * 1e6)
    return statistics.median(host), statistics.median(whole)


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else "target/release/libgvmm.so"
    torch.manual_seed(0)
    torch.cuda.init()
    count = 128
    inputs = [torch.randn(64 + 8 * i, device="cuda") for i in range(count)]

    def work(tensors):
        return [torch.tanh(a * 2) + b.sum() for a, b in zip(tensors, reversed(tensors))]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work(inputs)

    binder, wrong, launches = Binder(library, graph, inputs, results), 0, 0
    for step in range(20):
        new = [torch.randn_like(t) for t in inputs]
        out = [torch.empty_like(t) for t in results]
        binder.bind([*new, *out])
        launches = binder.replay()
        torch.cuda.synchronize()
        # What the same graph gives by a copy for each tensor.
        for static, tensor in zip(inputs, new):
            static.copy_(tensor)
        graph.replay()
        torch.cuda.synchronize()
        wrong += sum(not torch.equal(a, b) for a, b in zip(out, results))

    def one_by_one():
        for static, tensor in zip(inputs, new):
            static.copy_(tensor)
        graph.replay()
        for tensor, static in zip(out, results):
            tensor.copy_(static)

    print(f"{count} inputs and {len(results)} results; {wrong} results of 20 steps differ")
    print("| a step | copy launches | host µs | all µs |")
    print("|---|---|---|---|")
    for name, step, copies in (("the graph alone", graph.replay, 0), ("gvmm", binder.replay, launches),
                               ("a copy for each tensor", one_by_one, count + len(results))):
        host, whole = timed(step)
        print(f"| {name} | {copies} | {host:.1f} | {whole:.1f} |")
    binder.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
