"""Runs batches of rows through a model on a Ray cluster, with the interface of ray.data.llm.

    import ray
    from penstock.ray.data import ProcessorConfig, build_processor

    processor = build_processor(
        ProcessorConfig(model="org/name:Q4_K_M", concurrency=4),
        preprocess=lambda row: {"id": row["id"], "prompt": row["question"], "sampling_params": {"max_tokens": 100}},
        postprocess=lambda row: {"id": row["id"], "answer": row["generated_text"], "error": row["error"]})
    answers = processor(ray.data.read_json("questions.jsonl"))

Each actor has one engine. A failed row has the reason in `error`; the other rows of its batch are not affected. With
`checkpoint_path` every finished batch is stored, and a job that is run again computes only the missing ones.
"""
from __future__ import annotations

import glob
import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Set

import pyarrow
import pyarrow.parquet
import ray.data

Row = Dict[str, Any]
_OURS = {"prompt", "messages", "sampling_params"}


@dataclass
class ProcessorConfig:
    """A model and the settings of its actors.

    Attributes:
        model: as LLM takes it; every node must be able to find it.
        engine_kwargs: arguments of LLM.
        batch_size: number of rows that an actor receives at once; the engine forms its own batches of them.
        concurrency: number of actors, each with an engine.
        num_cpus: number of CPUs that Ray reserves for an actor, and of its threads.
        sampling_params: sampling parameters of rows that have none.
        chat_template_kwargs: template variables of rows with messages.
        checkpoint_path: a folder that all nodes share; every row then needs an "id", and the result is sorted by it.
        max_restarts: maximum restarts of an actor that dies; its batch is computed again.
    """

    model: str = ""
    engine_kwargs: Dict[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    concurrency: int = 1
    num_cpus: float = 1.0
    sampling_params: Dict[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Dict[str, Any] = field(default_factory=dict)
    checkpoint_path: Optional[str] = None
    max_restarts: int = 3


class _Engine:
    """An actor, which turns rows with a prompt into rows with an answer."""

    def __init__(self, config: ProcessorConfig) -> None:
        import penstock

        self._config = config
        self._llm = penstock.LLM(config.model, **{"threads": max(1, int(config.num_cpus)), **config.engine_kwargs})

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        rows: List[Row] = [json.loads(text) for text in batch["row"]]
        answers = [{**{name: value for name, value in row.items() if name not in _OURS}, **answer}
                   for row, answer in zip(rows, self._answers(rows))]
        if self._config.checkpoint_path:
            _keep(self._config.checkpoint_path, answers)
        return {"row": [json.dumps(answer) for answer in answers]}

    def _answers(self, rows: List[Row]) -> List[Row]:
        """Answers all rows in one call; if it fails, each row separately, so that an invalid row does not affect the others."""
        try:
            return self._generate(rows)
        except (ValueError, TypeError, KeyError):
            if len(rows) == 1:
                raise
        answers = []
        for row in rows:
            try:
                answers += self._generate([row])
            except (ValueError, TypeError, KeyError) as error:
                answers.append(_answer(None, f"{type(error).__name__}: {error}"))
        return answers

    def _generate(self, rows: List[Row]) -> List[Row]:
        import penstock

        prompts, params = [], []
        for row in rows:
            params.append(penstock.SamplingParams(**{**self._config.sampling_params, **(row.get("sampling_params") or {})}))
            if row.get("messages") is not None:
                text, ids = self._llm._generator().render_chat(
                    row["messages"], {"add_generation_prompt": True, "continue_final_message": False,
                                      "variables": self._config.chat_template_kwargs or None})
                prompts.append({"prompt": text, "prompt_token_ids": ids})
            else:
                prompts.append(row["prompt"])
        outputs = self._llm.generate(prompts, params, use_tqdm=False)
        return [_answer(output, output.outputs[0].error) for output in outputs]


def _answer(output: Any, error: Optional[str]) -> Row:
    if output is None:
        return {"generated_text": None, "generated_tokens": None, "num_input_tokens": None, "num_generated_tokens": None,
                "finish_reason": "error", "error": error}
    one = output.outputs[0]
    return {"generated_text": one.text, "generated_tokens": one.token_ids, "num_input_tokens": len(output.prompt_token_ids),
            "num_generated_tokens": len(one.token_ids), "finish_reason": one.finish_reason, "error": error}


def _keep(folder: str, answers: List[Row]) -> None:
    """Writes the file of a batch atomically. Its name is a hash of the ids, so that a batch is stored once."""
    name = hashlib.sha256("\n".join(str(answer["id"]) for answer in answers).encode()).hexdigest()[:24]
    path = os.path.join(folder, f"part-{name}.parquet")
    scratch = f"{path}.{os.getpid()}.tmp"
    pyarrow.parquet.write_table(pyarrow.table({"id": [json.dumps(answer["id"]) for answer in answers],
                                               "row": [json.dumps(answer) for answer in answers]}), scratch)
    with open(scratch, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _kept(folder: str) -> Dict[str, str]:
    """Returns {id: row} of all stored batches."""
    rows: Dict[str, str] = {}
    for path in sorted(glob.glob(os.path.join(folder, "part-*.parquet"))):
        table = pyarrow.parquet.read_table(path)
        rows.update(zip(table.column("id").to_pylist(), table.column("row").to_pylist()))
    return rows


def _id_of(row: Row) -> str:
    if "id" not in row:
        raise ValueError("checkpoint_path: every row needs an 'id', which preprocess has to keep")
    return json.dumps(_plain(row["id"]))


def _plain(value: Any) -> Any:
    """Converts numpy values to JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


Processor = Callable[["ray.data.Dataset"], "ray.data.Dataset"]


def build_processor(config: ProcessorConfig, preprocess: Optional[Callable[[Row], Row]] = None,
                    postprocess: Optional[Callable[[Row], Row]] = None) -> Processor:
    """Returns a function from a dataset to a dataset.

    Args:
        config: the model and the settings of its actors.
        preprocess: a row of the dataset to one with `prompt` or `messages`, perhaps `sampling_params`, and what else shall stay.
        postprocess: a row with what stayed, generated_text, generated_tokens, num_input_tokens, num_generated_tokens,
            finish_reason and error, to one of the result.
    """
    before = preprocess or (lambda row: row)
    after = postprocess or (lambda row: row)

    def packed(row: Row) -> Row:
        return {"row": json.dumps(_plain(before(row)))}

    def unpacked(row: Row) -> Row:
        return after(json.loads(row["row"]))

    def process(dataset: "ray.data.Dataset") -> "ray.data.Dataset":
        rows = dataset.map(packed)
        rows.context.execution_options.preserve_order = True
        done: Dict[str, str] = {}
        if config.checkpoint_path:
            os.makedirs(config.checkpoint_path, exist_ok=True)
            done = _kept(config.checkpoint_path)
            known: Set[str] = set(done)
            rows = rows.filter(lambda row: _id_of(json.loads(row["row"])) not in known)
        answers = rows.map_batches(_Engine, fn_constructor_args=(config,), batch_size=config.batch_size,
                                   compute=ray.data.ActorPoolStrategy(size=config.concurrency), num_cpus=config.num_cpus,
                                   max_restarts=config.max_restarts, max_task_retries=config.max_restarts,
                                   max_concurrency=2)  # the next batch starts before the last row of this one is done
        if not config.checkpoint_path:
            return answers.map(unpacked)
        if done:
            answers = answers.union(ray.data.from_items([{"row": row} for row in done.values()],
                                                              override_num_blocks=1 + len(done) // 10_000))
        keyed = answers.map(lambda row: {**row, "key": _sort_key(row["row"])})
        return keyed.sort("key").drop_columns(["key"]).map(unpacked)

    return process


def _sort_key(row: str) -> str:
    """Sort key of rows: numeric ids first, in numeric order, then texts."""
    key = json.loads(row)["id"]
    if isinstance(key, (int, float)) and not isinstance(key, bool) and abs(key) < 1 << 62:
        whole = math.floor(key)
        return f"0{whole + (1 << 62):020d}{key - whole:.9f}"
    return f"1{key}"
