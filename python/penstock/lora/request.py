"""vLLM's `LoRARequest`."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class LoRARequest:
    """A LoRA adapter of a request.

    Attributes:
        lora_name: its name.
        lora_int_id: its number, at least 1.
        lora_path: its folder.
        load_inplace: whether it is opened again, under its number, when its path or its files have changed.
        base_model_name, is_3d_lora_weight: vLLM's; an adapter's model and form are those of its files.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: Optional[str] = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False

    def __post_init__(self) -> None:
        if self.lora_int_id != self.lora_int_id or self.lora_int_id < 1:
            raise ValueError(f"lora_int_id: expected at least 1, got {self.lora_int_id}")
