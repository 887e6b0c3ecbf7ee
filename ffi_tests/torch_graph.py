"""The binder of c_examples/torch_graph.py, on the fakes of CUDA's driver and of PyTorch: `torch_graph.py LIBRARY`."""

import ctypes
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "fakes"), os.path.join(HERE, "..", "c_examples")]

import torch  # the fake
from torch_graph import Binder

SIZES = [1, 7, 64, 0, 300]


def tensors():
    return [torch.Tensor(words) for words in SIZES]


def refused(error, call):
    try:
        call()
    except error as e:
        return str(e)
    raise AssertionError("it is not refused")


def main():
    library, fake = sys.argv[1], ctypes.CDLL(os.environ["GVMM_CUDA_LIBRARY"])
    inputs, results = tensors(), tensors()

    def work():
        for a, b in zip(inputs, results):
            for i in range(len(a.words)):
                b.words[i] = a.words[i] + 1

    binder = Binder(library, torch.cuda.CUDAGraph(work), inputs, results)
    steps = [(tensors(), tensors()) for _ in range(6)]
    for n, (new, out) in enumerate(steps):
        for t in new:
            for i in range(len(t.words)):
                t.words[i] = 1000 * n + i
        binder.bind([*new, *out])
        assert binder.replay() == 2, "one launch in, and one out"
        assert binder.generation.value == 1
        if n == 2:
            # The graph is made anew over the same buffers; nobody needs to know.
            binder.graph = torch.cuda.CUDAGraph(work)
    torch.cuda.synchronize()
    for n, (_, out) in enumerate(steps):
        assert all(t.words[i] == 1000 * n + i + 1 for t in out for i in range(len(t.words))), f"step {n}"

    new, out = steps[0]
    assert "10 tensors are needed, not 9" in refused(ValueError, lambda: binder.bind([*new, *out[1:]]))
    for wrong in (torch.Tensor(8), torch.Tensor(7, contiguous=False), torch.Tensor(7, index=1)):
        assert "tensor 1 is not" in refused(ValueError, lambda: binder.bind([new[0], wrong, *new[2:], *out]))
    binder.bind([*new, *out])
    assert binder.replay() == 2, "what was refused changed nothing"
    # A result behind two slots.
    binder.bind([*new, *out])
    binder.buffers[4] = binder.buffers[5]
    assert "allocation" in refused(RuntimeError, binder.replay)
    # Two static buffers over each other.
    twice = [results[0], results[0]]
    assert "overlap" in refused(RuntimeError, lambda: Binder(library, None, [], twice))
    binder.close()
    fake.fake_cuda_last_breach.restype = ctypes.c_char_p
    assert fake.fake_cuda_breaches() == 0, fake.fake_cuda_last_breach()
    print("all results arrived")


if __name__ == "__main__":
    main()
