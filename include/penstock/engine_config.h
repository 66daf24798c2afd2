// Configuration of an engine. visit() is the one list from which the CLI flags, the config file and
// the docs are made.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace penstock {

struct EngineConfig {
  std::string model;  // GGUF file or Hugging Face directory
  // GGUF file with the model's vision tower; "" = the model's own, or the one beside a GGUF file
  std::string mmproj;
  std::string backend = "auto";
  // compute threads; 0 = as many CPUs as the process may use
  int threads = 0;
  // ranks: processes that share the model, this one and others that it starts
  int tensor_parallel_size = 1;
  // engines behind this one, each with its requests; 0 = one for every NUMA node
  int data_parallel_size = 1;
  // Stages that a model's layers are divided into, each of tensor_parallel_size ranks.
  int pipeline_parallel_size = 1;
  // type in which ranks exchange the terms of sums: f32, bf16
  std::string rank_wire_dtype = "f32";
  // > 0: share of the threads while other models of the process compute too
  double thread_weight = 1;
  // a sequence's results do not depend on what else is in the batch
  bool batch_invariant = false;
  // backend cuda: steps are not recorded as CUDA graphs
  bool enforce_eager = false;
  // encoding to round weights to at load; "" = weights as the file has them
  std::string quantize;
  // Where packed weights are kept on disk: on, off or a folder; "" = PENSTOCK_PACKED_CACHE, else
  // off.
  std::string packed_cache;
  bool experts_offload = false;  // experts' weights are mapped from a file
  // Number of first layers whose experts are computed by the CPU, of a mixture on a GPU; -1: as many
  // as do not fit the GPU. cpu_moe: all layers.
  int n_cpu_moe = -1;
  bool cpu_moe = false;
  // Bytes of the GPU for copies of the most used of those experts; 0: none; -1: half of what the
  // weights and a step leave
  int64_t expert_cache_memory = -1;
  // PATTERN=CPU or =CUDA0, several with commas: where experts are by the names of their tensors
  std::string override_tensor;
  std::string kv_cache_dtype = "auto";  // auto, f32, f16, bf16, int8, int4, fp8
  // type of recurrent layers' states: auto, float32, bfloat16
  std::string mamba_ssm_cache_dtype = "auto";
  int block_size = 16;
  std::string preset;  // "", chat, batch, hybrid
  // most tokens of prompt and completion; 0 = the model's limit
  int max_model_len = 0;
  int max_num_seqs = 0;            // 0 = the preset's, else 64
  int max_num_batched_tokens = 0;  // 0 = the preset's, else 2048
  int prefill_chunk = 0;           // 0 = automatic
  int64_t kv_cache_memory = 0;     // bytes; 0 = by memory_utilization
  double memory_utilization = 0;   // 0 = the preset's, else 0.85
  bool enable_prefix_caching = true;
  // tokens between kept states of recurrent models; 0 = automatic
  int state_snapshot_interval = 0;
  // where cached blocks are kept too: memory:SIZE (of the host), PATH[:SIZE] (a folder and the most
  // bytes in it), redis://HOST or rediss://HOST, or several in this order with commas between them;
  // "" = nowhere
  std::string kv_store;
  // Part in split serving by a shared store: prefill computes prompts only, and ends a request when
  // the store has its blocks; both and decode (with a store only) generate.
  std::string role = "both";
  // tokens of earlier texts that prompts are compared with; 0 = none
  int64_t prefix_history = 0;
  std::string kv_layout = "paged";  // paged, contiguous
  std::string policy = "continuous";
  int max_batch_size = 0;   // policy static and dynamic; 0 = max_num_seqs
  double max_wait_ms = 50;  // policy dynamic
  // policy dynamic: prompt tokens per batch; 0 = no limit
  int max_tokens_per_batch = 0;
  double priority_ageing_s = 10;  // policy priority
  int max_queued_requests = 4096;
  int64_t max_queued_tokens = 0;  // 0 = no limit
  // Drafter for speculation: a name of the list in draft/drafters.cc, or off; "" = draft when
  // draft_model is set, else only tokens that a grammar forces.
  std::string spec;
  // spec draft: GGUF file or Hugging Face directory
  std::string draft_model;
  // auto, or the number of tokens to draft every time
  std::string spec_length = "auto";
  // spec ngram: text file that is searched for continuations too
  std::string spec_corpus;
  // spec medusa, eagle3: directory or file with the trained heads
  std::string spec_heads;
  // spec early-exit: number of layers that draft; 0 = automatic
  int spec_exit_layer = 0;
  int max_loras = 8;  // LoRA adapters in memory at once
  int max_lora_rank = 256;
  uint64_t seed = 0;

  // Calls v(name, field, help) for every field, in this order. Self is EngineConfig or const
  // EngineConfig.
  template <class Self, class V>
  static void visit(Self& c, V&& v) {
    v("model", c.model, "GGUF file or Hugging Face directory");
    v("mmproj", c.mmproj,
      "GGUF file of the model's vision tower (llama.cpp's mmproj-*.gguf); empty takes the model's "
      "own, or the file of that name beside a GGUF file; none: no pictures");
    v("backend", c.backend,
      "where to compute; auto takes a GPU that computes what the CPU computes, else the CPU");
    v("threads", c.threads,
      "compute threads, of every rank and engine where there are several; 0 is as many as the "
      "process may use");
    v("tensor_parallel_size", c.tensor_parallel_size,
      "processes of this host that share the model, each with its part of every layer's weights: "
      "one for each socket");
    v("data_parallel_size", c.data_parallel_size,
      "engines that serve the model side by side, each with CPUs, a part of the KV cache and "
      "requests of its own; 0 is one for each NUMA node");
    v("pipeline_parallel_size", c.pipeline_parallel_size,
      "stages, each with some of the layers and of tensor_parallel_size processes, that compute "
      "different sequences at the same time: for hosts whose link is slow");
    v("rank_wire_dtype", c.rank_wire_dtype,
      "what goes between ranks that share layers: f32, or bf16: sums in half the bytes, rounded, "
      "for hosts whose link is slow");
    v("thread_weight", c.thread_weight,
      "of several models in one process: share of the compute threads while others are busy too");
    v("batch_invariant", c.batch_invariant,
      "the same bits whatever else runs, at some cost in speed");
    v("enforce_eager", c.enforce_eager,
      "backend cuda: compute every step as it comes, instead of recording those of few tokens and "
      "playing them again");
    v("quantize", c.quantize,
      "round full-precision weights at load: q8_0, q6_k, q4_k_m, q4_k, q4_0, ..., int8 to int2, "
      "nf4, fp4, fp8, w8a8");
    v("packed_cache", c.packed_cache,
      "keep the packed weights on disk for the next start: on (in the user's cache folder), off, "
      "or a folder; empty is what PENSTOCK_PACKED_CACHE says, else off");
    v("experts_offload", c.experts_offload,
      "map a mixture's experts from a file, of which the system keeps in memory what is used: a "
      "model may be larger than memory; the file is packed_cache's, else a nameless one in the "
      "user's cache folder");
    v("n_cpu_moe", c.n_cpu_moe,
      "of a mixture on a GPU: the first layers whose experts stay in the host's memory and are "
      "computed by the CPU; -1 is as many as do not fit the GPU");
    v("cpu_moe", c.cpu_moe, "of a mixture on a GPU: as n_cpu_moe, for all layers");
    v("expert_cache_memory", c.expert_cache_memory,
      "of a mixture on a GPU: bytes of it for copies of the most used experts that are the CPU's, "
      "for which all of those lie in the host's memory once more; 0 is none, -1 half of what "
      "weights and a step leave, if the host has the memory");
    v("override_tensor", c.override_tensor,
      "of a mixture on a GPU: PATTERN=CPU or PATTERN=CUDA0, several with commas: where a layer's "
      "experts are whose tensors (blk.0.ffn_up_exps.weight) the expression finds; before "
      "n_cpu_moe");
    v("kv_cache_dtype", c.kv_cache_dtype,
      "auto, f32, f16, bf16, int8, int4, or fp8 (backend cuda)");
    v("mamba_ssm_cache_dtype", c.mamba_ssm_cache_dtype,
      "of recurrent states: auto, float32 or bfloat16");
    v("block_size", c.block_size, "tokens per block of the KV cache");
    v("preset", c.preset,
      "chat (32 sequences, 4096 tokens, 0.70 of memory), batch (256, 32768, 0.95), hybrid (128, "
      "16384, 0.85)");
    v("max_model_len", c.max_model_len,
      "most tokens of prompt and completion; 0 is the model's own limit");
    v("max_num_seqs", c.max_num_seqs, "most sequences that run at once");
    v("max_num_batched_tokens", c.max_num_batched_tokens, "most tokens computed in one step");
    v("prefill_chunk", c.prefill_chunk,
      "most prompt tokens of one sequence in a step that also decodes; 0 is automatic");
    v("kv_cache_memory", c.kv_cache_memory, "bytes for the KV cache; 0 goes by memory_utilization");
    v("memory_utilization", c.memory_utilization,
      "share of the free memory that weights and KV cache may take");
    v("enable_prefix_caching", c.enable_prefix_caching, "reuse the KV blocks of equal prefixes");
    v("state_snapshot_interval", c.state_snapshot_interval,
      "of recurrent models: tokens from one kept state to the next, from which equal prefixes go "
      "on; 0 keeps them where steps end and where prompts part");
    v("kv_store", c.kv_store,
      "where the cached blocks of prompts and completions are kept beside the KV cache: "
      "memory:SIZE, of the host and for each model (K, M, G, T); PATH[:SIZE], a folder on a local "
      "disk and the most bytes in it (16G), which outlives restarts and which several servers and "
      "models may share; redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// with TLS, one "
      "or a cluster, which several machines may share; or several of them in this order: "
      "memory:4G,/cache:100G,redis://...");
    v("role", c.role,
      "with a kv_store that several servers share: prefill computes prompts only and answers when "
      "the store has their blocks, decode goes on from what it finds there, both (the default) is "
      "a server as any");
    v("prefix_history", c.prefix_history,
      "tokens of the last prompts and completions that are remembered, so that usage tells where a "
      "prompt left them and why it was not cached (cache_miss); 0 is off, 262144 takes 1 MiB");
    v("kv_layout", c.kv_layout,
      "paged, or contiguous: every sequence reserves max_model_len tokens, and nothing is shared");
    v("policy", c.policy, "who runs now");
    v("max_batch_size", c.max_batch_size, "sequences per batch of the static and dynamic policies");
    v("max_wait_ms", c.max_wait_ms,
      "longest wait of the dynamic policy for a full batch, milliseconds");
    v("max_tokens_per_batch", c.max_tokens_per_batch,
      "prompt tokens per batch of the dynamic policy; a longer prompt gets a batch of its own; 0 "
      "is no limit");
    v("priority_ageing_s", c.priority_ageing_s,
      "seconds of waiting that raise a request by one priority");
    v("max_queued_requests", c.max_queued_requests, "requests that may wait; more are refused");
    v("max_queued_tokens", c.max_queued_tokens, "prompt tokens that may wait; 0 is no limit");
    v("spec", c.spec,
      "speculative decoding, the same output sooner; empty: what grammars force, off: nothing");
    v("draft_model", c.draft_model,
      "spec draft: small model with the same vocabulary that guesses");
    v("spec_length", c.spec_length,
      "tokens to guess at a time; auto goes by what pays at the moment");
    v("spec_corpus", c.spec_corpus, "spec ngram: text file in which to look for continuations too");
    v("spec_heads", c.spec_heads, "spec medusa, eagle3: directory or file with the trained heads");
    v("spec_exit_layer", c.spec_exit_layer, "spec early-exit: layers that guess; 0 is automatic");
    v("max_loras", c.max_loras,
      "LoRA adapters in memory at once; requests for more than these wait");
    v("max_lora_rank", c.max_lora_rank, "largest rank of a LoRA adapter");
    v("seed", c.seed, "seed of the requests that bring none");
  }
};

}  // namespace penstock
