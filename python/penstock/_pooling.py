"""Embeddings, classes and scores: the part of `LLM` for pooling models."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _core
from ._adapters import Adapters
from ._engine_rules import Opening
from ._progress import progress
from .inputs import ParsedPrompt, parse_prompts
from .lora.request import LoRARequest
from .outputs import (ClassificationOutput, ClassificationRequestOutput, EmbeddingOutput, EmbeddingRequestOutput, PoolingOutput,
                      PoolingRequestOutput, ScoringOutput, ScoringRequestOutput)
from .pooling_params import PoolingParams

Names = Callable[[int], List[str]]
UseTqdm = Union[bool, Callable[..., Any]]
ParamsOrList = Union[None, PoolingParams, Sequence[PoolingParams]]
# The options of a call: pooling parameters, generator of request names, use_tqdm, adapters, tokenization_kwargs.
Call = Tuple[ParamsOrList, Names, UseTqdm, Any, Optional[Dict[str, Any]]]
# A function that computes some inputs: (tokens, parameters, adapter, progress callback).
Compute = Callable[[List[List[int]], PoolingParams, Optional[_core.OpenedAdapter], Callable[[int, int], None]], Any]

# Engine settings that pooling models support, and settings that do not affect their results.
_KNOWN = {"model", "backend", "threads", "batch_invariant", "enforce_eager", "quantize", "max_num_batched_tokens",
          "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "rank_wire_dtype", "max_loras", "max_lora_rank"}
_NO_CACHE = {"thread_weight", "packed_cache", "block_size", "preset", "max_model_len", "max_num_seqs", "prefill_chunk",
             "kv_cache_memory", "memory_utilization", "enable_prefix_caching", "state_snapshot_interval", "kv_layout",
             "policy", "max_batch_size", "max_wait_ms", "max_tokens_per_batch", "priority_ageing_s",
             "max_queued_requests", "max_queued_tokens", "seed"}


class Pooler:
    """A pooling model. Thread-safe; calls are serialized.

    Raises:
        ValueError: an argument that pooling models do not support.
    """

    def __init__(self, opening: Opening) -> None:
        for name, value in opening.config.items():
            if name not in _KNOWN and name not in _NO_CACHE and value not in (None, False, 0, "", "auto", "f32", "float32"):
                shown = "one" if name == "kv_store" else repr(value)  # which may have a password
                raise ValueError(f"{name}: a model that gives vectors has no use for {shown}")
        if opening.logits_processors:
            raise ValueError("logits_processors: a model that gives vectors has no logits of tokens")
        self._model = _core.EmbeddingModel({name: value for name, value in opening.config.items() if name in _KNOWN})
        self._config = opening.pooler_config
        self._chat_template = opening.chat_template
        self._skip_tokenizer = opening.skip_tokenizer
        self._info = self._model.info()
        self._most = min(self._info["max_tokens"], opening.config.get("max_model_len") or self._info["max_tokens"])
        self._adapters = Adapters(self._model, opening.enable_lora)
        self._lock = threading.Lock()
        self._n_requests = self._n_tokens = 0

    # Properties.

    @property
    def adapters(self) -> Adapters:
        """The open adapters."""
        return self._adapters

    @property
    def default_task(self) -> Optional[str]:
        """The task of encode() calls that do not name one; None: "embed"."""
        return self._config.task

    def info(self) -> Dict[str, Any]:
        """Returns the model's properties: architecture, dimensions, labels of classes, maximum tokens of an input."""
        return {**self._info, "max_model_len": self._most}

    def tasks(self) -> List[str]:
        """Returns the names of the tasks of encode() and score() that the checkpoint has."""
        classes = ["token_classify"] if self._info["labels_tokens"] else ["classify", "score"] if self._info["labels"] else ["score"]
        return ["embed", "token_embed", *classes]

    def native_tokenizer(self) -> "Optional[_core.NativeTokenizer]":
        """Returns the tokenizer; None: the checkpoint has none."""
        return self._model.tokenizer()

    def render_chat(self, messages: Any, options: Dict[str, Any]) -> Tuple[str, List[int]]:
        """Returns the prompt of a conversation, as ModelSession.render_chat()."""
        return self._model.render_chat(messages, options)

    def metrics(self) -> List[Tuple[str, str, str, Any]]:
        """Returns the metrics, in the form of ModelSession.metrics()."""
        return [("prompt_tokens", "counter", "tokens of inputs", float(self._n_tokens)),
                ("request_success", "counter", "requests that have ended well", float(self._n_requests))]

    # Calls.

    def embed(self, prompts: List[ParsedPrompt], call: Call) -> List[EmbeddingRequestOutput]:
        """Returns a vector for each prompt, as a list."""
        found = self._run(prompts, call, "embed", True, self._vectors(""))
        return [EmbeddingRequestOutput(name, EmbeddingOutput(vector.tolist()), ids) for name, vector, ids in found]

    def encode(self, prompts: List[ParsedPrompt], task: str, call: Call) -> List[PoolingRequestOutput[PoolingOutput]]:
        """Returns an array for each prompt: its vector, the vectors of its tokens, its class probabilities, or those of its
        tokens."""
        from ._arrays import rows

        computes: Dict[str, Compute] = {"embed": self._vectors(""), "token_embed": self._vectors("all"),
                                        "classify": self._classes(False), "token_classify": self._classes(True)}
        if task not in computes:
            raise ValueError(f"pooling_task: expected one of {', '.join(computes)}, got {task!r}")
        found = self._run(prompts, call, task, task.endswith("embed"), computes[task])
        return [PoolingRequestOutput(name, PoolingOutput(rows(data)), ids) for name, data, ids in found]

    def classify(self, prompts: List[ParsedPrompt], call: Call) -> List[ClassificationRequestOutput]:
        """Returns class probabilities for each prompt; with use_activation=False logits."""
        found = self._run(prompts, call, "classify", False, self._classes(False))
        return [ClassificationRequestOutput(name, ClassificationOutput(row.tolist()), ids) for name, row, ids in found]

    def score(self, data_1: Any, data_2: Any, chat_template: Optional[str], call: Call) -> List[ScoringRequestOutput]:
        """Returns the scores of pairs: by a cross-encoder's head, or without one the cosine similarity of the vectors; with task
        token_embed the sum of each first token's largest similarity to a second one's (late interaction)."""
        first, second = parse_prompts(data_1), parse_prompts(data_2)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise ValueError(f"score: expected one text or as many as in the second list ({len(second)}), got {len(first)}")
        if self._config.task == "token_embed":
            if chat_template:
                raise ValueError("chat_template: expected none where the vectors of tokens are compared (task token_embed)")
            return self._max_sims(first, second, call)
        template = chat_template or self._chat_template
        if self._info["labels"] or chat_template or not self._compares_vectors():
            return self._cross_scores(first, second, template, call)
        return self._cosines(first, second, call)

    def _compares_vectors(self) -> bool:
        """Whether the checkpoint has no head. A head that cannot be read counts as one, so that score() reports the error."""
        try:
            self._model.encode_pairs([], False, 0)
        except ValueError as error:
            if "has no classification head" not in str(error):
                raise
            return True
        return False

    def _max_sims(self, first: List[ParsedPrompt], second: List[ParsedPrompt], call: Call) -> List[ScoringRequestOutput]:
        """Returns the sums, over the tokens of the first text, of the largest product with a token of the second."""
        outputs = []
        for name, left, ids, right, others in self._of_both(first, second, call, self._vectors("all")):
            score = float((left @ right.T).max(axis=1).sum())
            outputs.append(ScoringRequestOutput(name, ScoringOutput(score), ids + others))
        return outputs

    def _cosines(self, first: List[ParsedPrompt], second: List[ParsedPrompt], call: Call) -> List[ScoringRequestOutput]:
        import numpy  # imported lazily: numpy's threads would receive the program's signals

        outputs = []
        for name, a, ids, b, others in self._of_both(first, second, call, self._vectors("")):
            lengths = max(float(numpy.linalg.norm(a) * numpy.linalg.norm(b)), 1e-12)
            outputs.append(ScoringRequestOutput(name, ScoringOutput(float((a * b).sum() / lengths)), ids + others))
        return outputs

    def _of_both(self, first: List[ParsedPrompt], second: List[ParsedPrompt], call: Call,
                 compute: Compute) -> List[Tuple[str, Any, List[int], Any, List[int]]]:
        """Returns for each pair the request's name, and arrays of float64 and tokens of the first and the second text."""
        import numpy  # imported lazily, as above

        params, names, use_tqdm, lora, options = call
        both = list(params) * 2 if isinstance(params, Sequence) else params
        adapters = list(lora) * 2 if isinstance(lora, (list, tuple)) else lora
        found = self._run(first + second, (both, names, use_tqdm, adapters, options), "score", True, compute)
        return [(name, numpy.asarray(left, dtype=numpy.float64), ids, numpy.asarray(right, dtype=numpy.float64), others)
                for (name, left, ids), (_, right, others) in zip(found[:len(first)], found[len(first):])]

    def _cross_scores(self, first: List[ParsedPrompt], second: List[ParsedPrompt], template: Optional[str],
                      call: Call) -> List[ScoringRequestOutput]:
        if any(prompt.text is None for prompt in first + second):
            raise ValueError("score: a cross-encoder reads texts, got token ids")
        pairs = [(left.text or "", right.text or "") for left, right in zip(first, second)]
        if template:
            rendered = [ParsedPrompt(None, self._rendered(template, pair)) for pair in pairs]
            found = self._run(rendered, call, "score", False, self._classes(False))
            if any(len(row) != 1 for _, row, _ in found):
                raise ValueError(f"score: a cross-encoder's head has one class, this one has {len(found[0][1])}")
            return [ScoringRequestOutput(name, ScoringOutput(float(row[0])), ids) for name, row, ids in found]
        params, names, use_tqdm, lora, options = call
        each = self._params(params, len(pairs), "score")
        adapters = self._adapters.for_each(lora, len(pairs))
        tokens: List[List[int]] = [[]] * len(pairs)
        scores = [0.0] * len(pairs)
        bar = progress(use_tqdm, len(pairs), "Processed prompts")
        try:
            for places, one, adapter in _alike(each, adapters):
                part = [pairs[i] for i in places]
                truncation = self._truncation(one, options)
                ids = self._model.encode_pairs(part, *truncation)
                self._check_length(ids)
                with self._lock:
                    found_scores = self._model.score(part, self._activated(one), *truncation, _teller(bar),
                                                     adapter=self._adapters.get(adapter))
                for i, score, its in zip(places, found_scores, ids):
                    scores[i], tokens[i] = score, its
        finally:
            bar.close()
        self._count(tokens)
        return [ScoringRequestOutput(name, ScoringOutput(score), ids)
                for name, score, ids in zip(names(len(pairs)), scores, tokens)]

    def _rendered(self, template: str, pair: Tuple[str, str]) -> List[int]:
        """Returns the tokens of a query and a document in a reranker's template, with the tokenizer's first and last tokens."""
        messages = [{"role": "query", "content": pair[0]}, {"role": "document", "content": pair[1]}]
        text, ids = self._model.render_chat(messages, {"chat_template": template, "add_generation_prompt": False,
                                                       "continue_final_message": False})
        tokenizer = self._model.tokenizer()
        return ids if tokenizer is None else tokenizer.encode(text)

    # Parts of calls.

    def _vectors(self, pooling: str) -> Compute:
        config = self._config

        def compute(tokens: List[List[int]], params: PoolingParams, adapter: Any, tell: Callable[[int, int], None]) -> Any:
            normalize = params.use_activation
            if normalize is None:
                normalize = config.use_activation if config.use_activation is not None else config.normalize
            return self._model.embed(tokens, pooling or (config.pooling_type or "").lower(), normalize,
                                     params.dimensions or config.dimensions or 0, tell, adapter=adapter)
        return compute

    def _classes(self, of_tokens: bool) -> Compute:
        def compute(tokens: List[List[int]], params: PoolingParams, adapter: Any, tell: Callable[[int, int], None]) -> Any:
            if params.dimensions is not None:
                raise ValueError("dimensions: are of vectors, and classes were asked for")
            return self._model.classify(tokens, self._activated(params), of_tokens, tell, adapter=adapter)
        return compute

    def _activated(self, params: PoolingParams) -> bool:
        asked = params.use_activation if params.use_activation is not None else self._config.use_activation
        return asked is not False

    def _run(self, prompts: List[ParsedPrompt], call: Call, task: str, with_prompt: bool,
             compute: Compute) -> List[Tuple[str, Any, List[int]]]:
        """Returns for each prompt the request's name, the result of `compute` and the tokens; prompts with equal parameters share
        calls of it."""
        params, names, use_tqdm, lora, options = call
        rest = dict(options or {})
        prompt_name = rest.pop("prompt_name", None) if with_prompt else ""
        each = self._params(params, len(prompts), task)
        adapters = self._adapters.for_each(lora, len(prompts))
        if self._skip_tokenizer and any(prompt.token_ids is None for prompt in prompts):
            raise ValueError("prompt: expected token ids: the engine was opened with skip_tokenizer_init")
        tokens: List[List[int]] = [[]] * len(prompts)
        found: List[Any] = [None] * len(prompts)
        bar = progress(use_tqdm, len(prompts), "Processed prompts")
        try:
            for places, one, adapter in _alike(each, adapters):
                ids = self._model.encode([prompts[i].content for i in places], prompt_name, *self._truncation(one, rest))
                self._check_length(ids)
                with self._lock:
                    part = compute(ids, one, self._adapters.get(adapter), _teller(bar))
                for i, data, its in zip(places, part, ids):
                    found[i], tokens[i] = data, its
        finally:
            bar.close()
        self._count(tokens)
        return list(zip(names(len(prompts)), found, tokens))

    def _count(self, tokens: List[List[int]]) -> None:
        with self._lock:
            self._n_requests += len(tokens)
            self._n_tokens += sum(map(len, tokens))

    def _check_length(self, tokens: List[List[int]]) -> None:
        for i, ids in enumerate(tokens):
            if len(ids) > self._most:
                raise ValueError(f"input {i}: expected at most {self._most} tokens, got {len(ids)}")

    @staticmethod
    def _params(params: ParamsOrList, n: int, task: str) -> List[PoolingParams]:
        one_for_all = params is None or isinstance(params, PoolingParams)
        each: List[Any] = [params or PoolingParams()] * n if one_for_all or not isinstance(params, Sequence) else list(params)
        if len(each) != n:
            raise ValueError(f"pooling_params: expected one or {n}, as many as prompts, got {len(each)}")
        for one in each:
            if not isinstance(one, PoolingParams):
                raise TypeError(f"pooling_params: expected PoolingParams, got {type(one).__name__}")
            if one.task is not None and one.task != task:
                raise ValueError(f"pooling_params: task: this call is for {task!r}, got {one.task!r}")
        return each

    def _truncation(self, params: PoolingParams, options: Optional[Dict[str, Any]]) -> Tuple[bool, int]:
        """Returns whether inputs that are too long for the model are cut, and the length to which all are cut (0: none). Errors:
        ValueError."""
        truncate, to = False, params.truncate_prompt_tokens
        for name, value in (options or {}).items():
            if name == "truncate_prompt_tokens":
                to = value if to is None else to
            elif name == "truncation":
                truncate = value not in (None, False, "do_not_truncate")
            elif not (name == "add_special_tokens" and value):
                raise ValueError(f"tokenization_kwargs: {name!r} is not supported for pooling")
        whole = self._most if self._most < self._info["max_tokens"] else 0
        if to is None:
            return truncate, whole if truncate else 0
        if to == 0 or to < -1:
            raise ValueError(f"truncate_prompt_tokens: expected at least 1, or -1 (what the model takes), got {to}")
        return (True, whole) if to == -1 else (truncate, to)


def _alike(each: List[PoolingParams],
           adapters: List[Optional[LoRARequest]]) -> List[Tuple[List[int], PoolingParams, Optional[LoRARequest]]]:
    """Groups the indices of prompts by parameters and adapter."""
    groups: Dict[Any, Tuple[List[int], PoolingParams, Optional[LoRARequest]]] = {}
    for i, (one, adapter) in enumerate(zip(each, adapters)):
        key = one.use_activation, one.dimensions, one.truncate_prompt_tokens, adapter
        groups.setdefault(key, ([], one, adapter))[0].append(i)
    return list(groups.values())


def _teller(bar: Any) -> Callable[[int, int], None]:
    done = 0

    def tell(n_done: int, _: int) -> None:
        nonlocal done
        bar.update(n_done - done)
        done = n_done
    return tell
