"""vLLM's description of the platform."""
from __future__ import annotations

import os
import platform as _platform
import random


class Platform:
    """The CPU platform: prompts, outputs and arrays are in CPU memory."""

    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"

    @staticmethod
    def is_cpu() -> bool:
        """Returns True."""
        return True

    @staticmethod
    def get_device_name(device_id: int = 0) -> str:
        """Returns the name of the CPU."""
        return _platform.processor() or _platform.machine()

    @staticmethod
    def get_device_total_memory(device_id: int = 0) -> int:
        """Returns the bytes of physical memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @staticmethod
    def device_count() -> int:
        """Returns 1."""
        return 1

    @staticmethod
    def empty_cache() -> None:
        """Does nothing: freed memory is not cached."""

    @staticmethod
    def seed_everything(seed: int) -> None:
        """Seeds Python's random module; requests have their own seeds."""
        random.seed(seed)

    @staticmethod
    def _no() -> bool:
        """Returns False."""
        return False

    is_cuda = is_cuda_alike = is_rocm = is_tpu = is_xpu = is_hpu = is_neuron = is_out_of_tree = is_unspecified = _no
    is_pin_memory_available = is_async_output_supported = supports_fp8 = _no


class CpuPlatform(Platform):
    """vLLM's name of the CPU platform."""


current_platform = CpuPlatform()

__all__ = ["CpuPlatform", "Platform", "current_platform"]
