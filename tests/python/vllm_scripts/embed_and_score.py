from argparse import Namespace

from vllm import LLM, EngineArgs, PoolingParams
from vllm.utils import FlexibleArgumentParser


def parse_args() -> Namespace:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    parser.set_defaults(model="embedding-model", runner="pooling", enforce_eager=True)
    return parser.parse_args([])


llm = LLM(**vars(parse_args()))
outputs = llm.embed(["Hello", "The president of the United States is"], pooling_params=PoolingParams(dimensions=8))
for output in outputs:
    print(len(output.outputs.embedding), output.outputs.embedding[:4])
(one,) = llm.score("What is the capital of France?", "Paris is.")
assert isinstance(one.outputs.score, float)
assert len(llm.score("a", ["b", "c", "d"])) == 3
(data,) = llm.encode("Hello", pooling_task="embed")
print(data.outputs.data.shape)
