// A LoRA adapter on disk: for each of some linear layers of a base model two thin matrices, whose product is added to the
// layer's weight: y = W x + scale * B (A x).
//
// Two formats: PEFT's directories (adapter_config.json, adapter_model.safetensors; https://huggingface.co/docs/peft) and
// llama.cpp's GGUF files (general.type "adapter", tensors WEIGHT.lora_a and WEIGHT.lora_b).
//
// Of a mixture's experts a file has pairs for each one's matrix, or one pair of tensors for all. GGUF: [n_experts, rank, in] and
// [n_experts, out, rank]. PEFT (target_parameters): [n_experts * rank, in] and [out, rank * n_experts], where expert e has the rows
// e * rank + k and the columns k * n_experts + e.
#pragma once
#include <algorithm>

#include "formats/weight_source.h"

namespace penstock {

struct LoraModule {
  std::string
      weight;  // the base's weight that it adds to, as the adapter's format names it: "blk.0.attn_q.weight"
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
  float scale = 1;
  int64_t n_experts = 0;  // > 0: the pair is of so many experts

  int64_t rank() const { return by_expert() ? a->shape[1] : a->shape[0] / std::max<int64_t>(n_experts, 1); }
  int64_t in() const { return a->shape.back(); }
  int64_t out() const { return by_expert() ? b->shape[1] : b->shape[0]; }
  bool by_expert() const { return a->shape.size() == 3; }  // as GGUF has them
};

// The two matrices of a module, or of one of its experts.
struct LoraPair {
  std::vector<float> a, b;  // [rank, in], [out, rank]
};

struct LoraAdapter {
  std::filesystem::path path;            // that was opened
  std::unique_ptr<WeightSource> source;  // what the modules point into; its naming is that of their weights
  std::vector<LoraModule> modules;       // at least one, by name
};

// Opens a PEFT directory or a GGUF file. Every tensor belongs to a module; ranks are from 1 to 4096 and, of PEFT's, those of the
// configuration. Errors: kNotFound; kCorruptFile; kUnsupported for a variant that computes something else (DoRA, aLoRA, biases,
// layers trained whole, adapters of embeddings, ...), by its name.
Result<LoraAdapter> open_lora(const std::filesystem::path& path);

// Whether the adapter can be merged into this model, which is of the same format: each weight is there and is a matrix [out, in], or
// in GGUF files such matrices of all experts. Errors: kInvalidArgument; kUnsupported for PEFT's pairs of all experts.
Status check_lora_base(const LoraAdapter& adapter, const WeightSource& base);

// Of its content: two with the same compute the same.
uint64_t lora_fingerprint(const LoraAdapter& adapter);

// All pairs of a module: one, or one for each expert. turned: the adapter was made for W^T, in and out are the other way round.
std::vector<LoraPair> lora_pairs(const LoraModule& module, bool turned = false);

// Adds scale * B A to rows [first_row, first_row + rows.size() / in) of the weight, of experts' weights one after the other.
// REQUIRES: not the pair of all experts in PEFT's order.
void add_lora(const LoraModule& module, int64_t first_row, std::span<float> rows);

}  // namespace penstock
