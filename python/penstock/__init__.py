"""Penstock: fast, exact inference for large language models, with vLLM's Python API.

    from penstock import LLM, SamplingParams

    llm = LLM()                                   # the built-in story model; or a GGUF file, a directory, "org/name"
    for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=60)):
        print(output.outputs[0].text)
"""
from __future__ import annotations

import os as _os
import sys as _sys

from . import _core
from .async_llm import AsyncLLM, AsyncLLMEngine
from .engine_args import AsyncEngineArgs, EngineArgs
from .engine.llm_engine import LLMEngine
from .errors import EngineError
from .inputs import PromptType, TextPrompt, TokensPrompt
from .llm import LLM
from .logprobs import Logprob
from .lora.request import LoRARequest
from ._openai_server import openai_server
from ._paths import get_cmake_dir, get_include
from .outputs import (BeamSearchOutput, BeamSearchSequence, ClassificationOutput, ClassificationRequestOutput,
                      CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, PoolingOutput, PoolingRequestOutput,
                      RequestOutput, RequestStateStats, ScoringOutput, ScoringRequestOutput)
from .pooling_params import PoolerConfig, PoolingParams
from .sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams, StructuredOutputsParams
from .tokenizer import Tokenizer
from .version import __version__, __version_tuple__

_core.set_engine_error(EngineError)
_core.set_rank_program([_sys.executable, "-m", "penstock"])  # ranks of tensor_parallel_size run this package
_core.add_model_folder(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "models"))

__all__ = [
    "AsyncEngineArgs", "AsyncLLM", "AsyncLLMEngine", "BeamSearchOutput", "BeamSearchParams", "BeamSearchSequence",
    "ClassificationOutput", "ClassificationRequestOutput", "CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput",
    "EngineArgs", "EngineError", "LLM", "LLMEngine", "Logprob", "LoRARequest", "PoolerConfig", "PoolingOutput",
    "PoolingParams", "PoolingRequestOutput", "PromptType", "RequestOutput", "RequestOutputKind", "RequestStateStats",
    "SamplingParams", "ScoringOutput", "ScoringRequestOutput", "StructuredOutputsParams", "TextPrompt", "Tokenizer",
    "TokensPrompt", "__version__", "__version_tuple__", "get_cmake_dir", "get_include", "openai_server",
]
