#include "cli/commands.h"

#include <vector>

namespace penstock {

std::span<const Command> commands() {
  static const std::vector<Command> list = {
      {"run", "chat with a model in the terminal", add_run},
      {"generate", "go on from a prompt", add_generate},
      {"serve", "OpenAI-compatible server", add_serve},
      {"keys", "make, list and revoke the API keys of a server", add_keys},
      {"models", "list the models on this machine", add_models},
      {"pull", "download models of a Hugging Face hub", add_pull},
      {"rm", "remove downloaded models", add_rm},
      {"tokenize", "text to token ids and back", add_tokenize},
      {"score", "log-likelihood of every token of a text", add_score},
      {"perplexity", "how well a model predicts a text", add_perplexity},
      {"bench", "prefill and decode speed against the machine's limits", add_bench},
      {"quantize", "make a smaller checkpoint of a checkpoint", add_quantize},
      {"eval-quant", "how much quantized checkpoints differ from their original", add_eval_quant},
      {"imatrix", "which inputs of every layer matter, for quantize --imatrix", add_imatrix},
      {"inspect", "show what is in a model file", add_inspect},
      {"plan", "memory of weights and KV cache, and how many sequences fit", add_plan},
      {"render", "print what a chat template makes of a conversation", add_render},
  };
  return list;
}

}  // namespace penstock
