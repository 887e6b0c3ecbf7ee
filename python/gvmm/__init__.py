"""gvmm: device memory that moves under addresses that stay. `gvmm.torch` is the allocator for PyTorch,
`gvmm.xpu` that for PyTorch on Intel GPUs.

This package is a thin layer over the C ABI of the library in it; `gvmm.lib()` gives that.
"""

from ._lib import Error, lib, path

__all__ = ["Error", "lib", "path"]
