"""As much of PyTorch as c_examples/torch_graph.py's binder uses, over the fake CUDA library: tensors of 32-bit words whose memory
the host can touch, one stream, and graphs of a host function."""

import ctypes
import os
from collections import namedtuple

_cuda = ctypes.CDLL(os.environ["GVMM_CUDA_LIBRARY"])
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Device = namedtuple("device", "index")


def _call(name, *arguments):
    status = getattr(_cuda, name)(*arguments)
    assert status == 0, f"{name}: {status}"


def _address():
    return ctypes.c_void_p()


_context, _stream, _kept = _address(), _address(), []
_call("cuInit", 0)
_call("cuDevicePrimaryCtxRetain", ctypes.byref(_context), 0)
_call("cuCtxPushCurrent_v2", _context)
_call("cuStreamCreate", ctypes.byref(_stream), 1)


class Tensor:
    def __init__(self, words, contiguous=True, index=0):
        at = ctypes.c_uint64(0)
        if words:
            _call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(4 * words))
        self._at, self._contiguous, self.nbytes, self.device = at.value, contiguous, 4 * words, _Device(index)
        self.words = (ctypes.c_uint32 * words).from_address(at.value) if words else []

    def data_ptr(self):
        return self._at

    def is_contiguous(self):
        return self._contiguous


class _Stream:
    cuda_stream = _stream.value


class cuda:
    @staticmethod
    def current_stream():
        return _Stream

    @staticmethod
    def synchronize():
        _call("cuStreamSynchronize", _stream)

    class CUDAGraph:
        """Captures `work`, which runs at each replay."""

        def __init__(self, work):
            self._function, graph, self._exec = _FUNCTION(lambda _: work()), _address(), _address()
            # A launch may still be in the stream when nobody has the graph any more.
            _kept.append(self._function)
            _call("cuStreamBeginCapture_v2", _stream, 2)
            _call("cuLaunchHostFunc", _stream, self._function, None)
            _call("cuStreamEndCapture", _stream, ctypes.byref(graph))
            _call("cuGraphInstantiateWithFlags", ctypes.byref(self._exec), graph, ctypes.c_uint64(0))

        def replay(self):
            _call("cuGraphLaunch", self._exec, _stream)
