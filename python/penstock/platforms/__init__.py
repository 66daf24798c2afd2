"""What scripts ask of the machine that they run on."""
from __future__ import annotations

import os
import platform as _platform
import random


class Platform:
    """The processor, which prompts, outputs and arrays are in the memory of."""

    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"

    @staticmethod
    def is_cpu() -> bool:
        """Yes."""
        return True

    @staticmethod
    def get_device_name(device_id: int = 0) -> str:
        """Of the processor."""
        return _platform.processor() or _platform.machine()

    @staticmethod
    def get_device_total_memory(device_id: int = 0) -> int:
        """Bytes of memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @staticmethod
    def device_count() -> int:
        """One."""
        return 1

    @staticmethod
    def empty_cache() -> None:
        """Nothing is kept that is freed."""

    @staticmethod
    def seed_everything(seed: int) -> None:
        """Seeds Python's random numbers; requests have seeds of their own."""
        random.seed(seed)

    @staticmethod
    def _no() -> bool:
        """No."""
        return False

    is_cuda = is_cuda_alike = is_rocm = is_tpu = is_xpu = is_hpu = is_neuron = is_out_of_tree = is_unspecified = _no
    is_pin_memory_available = is_async_output_supported = supports_fp8 = _no


class CpuPlatform(Platform):
    """vLLM's name of it."""


current_platform = CpuPlatform()

__all__ = ["CpuPlatform", "Platform", "current_platform"]
