// LoRA adapters on disk: for some linear layers of a base model two low-rank matrices A and B,
// whose product is added to the layer's weight: y = W x + scale * B (A x).
//
// Two formats: PEFT's directories (adapter_config.json, adapter_model.safetensors;
// https://huggingface.co/docs/peft) and llama.cpp's GGUF files (general.type "adapter", tensors
// WEIGHT.lora_a and WEIGHT.lora_b).
//
// For a mixture of experts a file has a pair of matrices for each expert, or one pair of tensors
// for all. GGUF: [n_experts, rank, in] and [n_experts, out, rank]. PEFT (target_parameters):
// [n_experts * rank, in] and [out, rank * n_experts], where expert e has the rows e * rank + k and
// the columns k * n_experts + e.
#pragma once
#include <algorithm>

#include "formats/weight_source.h"

namespace penstock {

struct LoraModule {
  // Name of the base model's weight that it adds to, in the adapter's format:
  // "blk.0.attn_q.weight".
  std::string weight;
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
  float scale = 1;
  int64_t n_experts = 0;  // > 0: the pair is that of n_experts experts

  int64_t rank() const {
    return by_expert() ? a->shape[1] : a->shape[0] / std::max<int64_t>(n_experts, 1);
  }
  int64_t in() const { return a->shape.back(); }
  int64_t out() const { return by_expert() ? b->shape[1] : b->shape[0]; }
  bool by_expert() const { return a->shape.size() == 3; }  // GGUF's form of a pair of all experts
};

// The two matrices of a module, or of one of its experts.
struct LoraPair {
  std::vector<float> a, b;  // [rank, in], [out, rank]
};

struct LoraAdapter {
  std::filesystem::path path;  // path that was opened
  // owner of the tensors; its naming is that of LoraModule::weight
  std::unique_ptr<WeightSource> source;
  std::vector<LoraModule> modules;  // at least one, sorted by name
};

// Opens a PEFT directory or a GGUF file. Checks that every tensor belongs to a module and that
// ranks are from 1 to 4096 and, for PEFT, those of the configuration. Errors: kNotFound;
// kCorruptFile; kUnsupported, with its name, for a variant that computes something else (DoRA,
// aLoRA, biases, fully trained layers, adapters of embeddings, ...).
Result<LoraAdapter> open_lora(const std::filesystem::path& path);

// Checks whether the adapter can be merged into this model: both have the same format, and each
// weight exists and is a matrix [out, in], or in GGUF files such matrices of all experts. Errors:
// kInvalidArgument; kUnsupported for PEFT's pairs of all experts.
Status check_lora_base(const LoraAdapter& adapter, const WeightSource& base);

// Fingerprint of the adapter's content: adapters with equal fingerprints compute the same.
uint64_t lora_fingerprint(const LoraAdapter& adapter);

// Returns the pairs of a module: one, or one for each expert. turned: the adapter was trained for
// the transpose of W, so that in and out are swapped.
std::vector<LoraPair> lora_pairs(const LoraModule& module, bool turned = false);

// Adds scale * B A to rows [first_row, first_row + rows.size() / in) of the weight; rows of all
// experts are numbered one expert after the other. REQUIRES: the module is not a pair of all
// experts in PEFT's form.
void add_lora(const LoraModule& module, int64_t first_row, std::span<float> rows);

}  // namespace penstock
