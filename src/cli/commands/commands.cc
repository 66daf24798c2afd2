// The list of the program's commands. A new command needs a file, a declaration here and a row.
#include "cli/commands/commands.h"

namespace penstock {

AddCommand add_run, add_generate, add_tokenize, add_render, add_inspect, add_plan, add_score,
    add_perplexity, add_bench, add_serve, add_quantize, add_eval_quant, add_imatrix, add_keys,
    add_models, add_pull, add_rm, add_grammar, add_embed, add_merge_lora, add_rank, add_run_batch,
    add_route, add_doctor, add_completion, add_cache;

namespace {

constexpr Command kCommands[] = {
    {"run", "chat with a model in the terminal", add_run},
    {"generate", "go on from a prompt", add_generate},
    {"serve", "OpenAI-compatible server", add_serve},
    {"run-batch", "compute the requests of a file, without a server", add_run_batch},
    {"keys", "make, list and revoke the API keys of a server", add_keys},
    {"route", "train the choice between a small and a large model", add_route},
    {"cache", "list, check and prune the blocks of a --kv-store", add_cache},
    {"models", "list the models on this machine", add_models},
    {"pull", "download models of a Hugging Face hub", add_pull},
    {"rm", "remove downloaded models", add_rm},
    {"tokenize", "text to token ids and back", add_tokenize},
    {"embed", "texts to vectors, by encoders or decoders", add_embed},
    {"score", "log-likelihood of every token of a text", add_score},
    {"perplexity", "how well a model predicts a text", add_perplexity},
    {"bench", "prefill and decode speed against the machine's limits", add_bench},
    {"quantize", "make a smaller checkpoint of a checkpoint", add_quantize},
    {"merge-lora", "add a LoRA adapter to a checkpoint's weights", add_merge_lora},
    {"eval-quant", "how much quantized checkpoints differ from their original", add_eval_quant},
    {"imatrix", "which inputs of every layer matter, for quantize --imatrix", add_imatrix},
    {"inspect", "show the contents of a model file", add_inspect},
    {"plan", "memory of weights and KV cache, and how many sequences fit", add_plan},
    {"doctor", "what this machine has, and what to do about it", add_doctor},
    {"grammar", "test what a schema, regex or grammar allows, and measure its speed", add_grammar},
    {"render", "print the prompt that a chat template makes of a conversation", add_render},
    {"completion", "completions for bash, zsh and fish, the manual page, the API's description",
     add_completion},
    {"rank", "compute beside another process, which starts this", add_rank},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace penstock
