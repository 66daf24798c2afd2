"""vLLM's place for what a beam search gives."""
from .outputs import BeamSearchOutput, BeamSearchSequence

__all__ = ["BeamSearchOutput", "BeamSearchSequence"]
