from vllm import LLM, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser()
EngineArgs.add_cli_args(parser)
parser.set_defaults(model="chat-model", trust_remote_code=True)
group = parser.add_argument_group("Sampling parameters")
group.add_argument("--max-tokens", type=int)
group.add_argument("--temperature", type=float)
args = vars(parser.parse_args(["--max_tokens", "12", "--temperature=0", "--max-num-seqs", "4", "--enforce-eager"]))
max_tokens, temperature = args.pop("max_tokens"), args.pop("temperature")
llm = LLM(**args)
params = llm.get_default_sampling_params()
params.max_tokens, params.temperature = max_tokens, temperature
conversation = [{"role": "system", "content": "You are brief"}, {"role": "user", "content": "plain"}]
print(llm.chat(conversation, params, use_tqdm=False)[0].outputs[0].text)
many = llm.chat([conversation] * 3, sampling_params=params, use_tqdm=True)
assert [output.outputs[0].text for output in many] == ["Hello there!"] * 3
print(llm.chat(conversation, params, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")[0].prompt)
