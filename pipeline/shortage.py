"""How libraries say that memory ran out, where they have no type of error for it.

The one place that looks at the text of an error: torch's allocator for main memory, ONNX Runtime
and OpenVINO raise the same type for this as for anything else.
"""

from __future__ import annotations

_SAID = (
    "DefaultCPUAllocator:",  # torch, c10/core/impl/alloc_cpu.cpp
    "can't alloc",  # OpenVINO, intel_cpu/src/node.cpp
    "Failed to allocate ",  # ONNX Runtime, bfc_arena.cc; OpenVINO, intel_cpu/src/cpu_memory.cpp
    "bad_alloc",  # C++, by whoever catches it
    "_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN
)


def is_shortage(error: Exception) -> bool:
    """Whether an error of a library says that memory ran out."""
    return isinstance(error, MemoryError) or any(said in str(error) for said in _SAID)
