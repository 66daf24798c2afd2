import json
from enum import Enum

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams


class Kind(str, Enum):
    sedan = "sedan"
    truck = "truck"


schema = {"type": "object", "properties": {"brand": {"type": "string", "maxLength": 6}, "kind": {"enum": [k.value for k in Kind]}},
          "required": ["brand", "kind"], "additionalProperties": False}
llm = LLM(model="model", max_model_len=200)


def ask(prompt, **held):
    params = SamplingParams(structured_outputs=StructuredOutputsParams(**held), max_tokens=60, temperature=0)
    return llm.generate(prompt, sampling_params=params, use_tqdm=False)[0].outputs[0].text


assert ask("It is", choice=["Positive", "Negative"]) in ("Positive", "Negative")
assert ask("Mail:", regex=r"[a-z]{1,8}@[a-z]{1,8}\.com\n").endswith(".com\n")
assert json.loads(ask("A car:", json=schema, disable_any_whitespace=True))["kind"] in ("sedan", "truck")
assert ask("SQL:", grammar='root ::= "SELECT " ("a" | "b") " FROM t"') in ("SELECT a FROM t", "SELECT b FROM t")
