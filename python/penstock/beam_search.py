"""vLLM's module name for the outputs of beam search."""
from .outputs import BeamSearchOutput, BeamSearchSequence

__all__ = ["BeamSearchOutput", "BeamSearchSequence"]
