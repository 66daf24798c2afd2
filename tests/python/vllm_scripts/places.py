import gc
import os
import random

from vllm import LLM, EngineArgs, SamplingParams
from vllm.config import CompilationConfig, PoolerConfig, ProfilerConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.distributed.parallel_state import destroy_model_parallel, get_world_group
from vllm.entrypoints.llm import LLM as SameLLM
from vllm.inputs import PromptType
from vllm.logger import init_logger
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.pooling_params import PoolingParams
from vllm.renderers.inputs.preprocess import parse_model_prompt
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.network_utils import get_open_port
from vllm.utils.print_utils import print_embeddings
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.metrics.reader import Counter, Gauge, Histogram, Vector

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
logger = init_logger(__name__)
logger.info("%d", get_open_port())
assert LLM is SameLLM and current_platform.is_cpu() and not current_platform.is_rocm() and PromptType and PoolingParams
parser = FlexibleArgumentParser()
group = parser.add_argument_group("Engine arguments")
EngineArgs.add_cli_args(group)
group.set_defaults(model="model", enable_expert_parallel=True)
args = vars(parser.parse_args(["-dp=1"]))
assert args.pop("data_parallel_size") == 1
args["profiler_config"] = ProfilerConfig(profiler="torch", torch_profiler_dir="profile")
args.update(compilation_config=CompilationConfig(mode=3), disable_log_stats=False)
llm = LLM(**args)
assert isinstance(llm.llm_engine, LLMEngine) and llm.llm_engine is llm.llm_engine
parsed = parse_model_prompt(llm.llm_engine.model_config, "Hello, my name is")
(rendered,) = llm.renderer.render_cmpl([parsed], llm.renderer.default_cmpl_tok_params.with_kwargs())
llm.start_profile()
outputs: list[RequestOutput] = llm.generate(rendered, SamplingParams(temperature=0.8, top_p=0.95))
llm.stop_profile()
assert os.listdir("profile") and outputs[0].prompt == "Hello, my name is"
kinds = {kind: [metric.name for metric in llm.get_metrics() if isinstance(metric, kind)] for kind in (Counter, Gauge, Histogram, Vector)}
assert all(kinds.values())
print_embeddings([random.random() for _ in range(9)], prefix="Numbers")
assert llm.llm_engine.vllm_config.parallel_config.data_parallel_size == 1 and PoolerConfig
del llm
gc.collect()
cleanup_dist_env_and_memory()
assert get_world_group().world_size == 1
destroy_model_parallel()
