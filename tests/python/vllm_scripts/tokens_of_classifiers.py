from vllm import LLM, EngineArgs
from vllm.config import PoolerConfig
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.print_utils import print_embeddings

parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
parser.set_defaults(model="token-classifier", runner="pooling", enforce_eager=True, trust_remote_code=True)
llm = LLM(**vars(parser.parse_args([])))
label_map = llm.llm_engine.vllm_config.model_config.hf_config.id2label
(output,) = llm.encode([{"prompt_token_ids": [5, 6, 7]}], pooling_task="token_classify")
labels = [label_map[p.item()] for p in output.outputs.data.argmax(dim=-1)]
assert len(labels) == 3 and set(labels) <= {"O", "A", "B"}
print_embeddings(llm.reward({"prompt_token_ids": [5, 6]})[0].outputs.data.tolist(), prefix="Reward")

llm = LLM("embedding-model", runner="pooling", pooler_config=PoolerConfig(task="token_embed"), max_model_len=64)
tokenizer = llm.get_tokenizer()
(output,) = llm.encode("What is it?", pooling_task="token_embed")
shown = [token for token in tokenizer.convert_ids_to_tokens(output.prompt_token_ids) if token not in tokenizer.all_special_tokens]
print(output.outputs.data.shape, shown, llm.get_metrics()[0].value)
