// A LoRA adapter on disk: for each of some linear layers of a base model two thin matrices, whose product is added to the
// layer's weight: y = W x + scale * B (A x).
//
// Two formats: PEFT's directories (adapter_config.json, adapter_model.safetensors; https://huggingface.co/docs/peft) and
// llama.cpp's GGUF files (general.type "adapter", tensors WEIGHT.lora_a and WEIGHT.lora_b).
#pragma once
#include "formats/weight_source.h"

namespace penstock {

struct LoraModule {
  std::string
      weight;  // the base's weight that it adds to, as the adapter's format names it: "blk.0.attn_q.weight"
  const TensorInfo* a = nullptr;  // [rank, in]
  const TensorInfo* b = nullptr;  // [out, rank]
  float scale = 1;

  int64_t rank() const { return a->shape[0]; }
  int64_t in() const { return a->shape[1]; }
  int64_t out() const { return b->shape[0]; }
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

// Whether the adapter is one of this model, which is of the same format: each weight is there and is a matrix [out, in].
// Errors: kInvalidArgument.
Status check_lora_base(const LoraAdapter& adapter, const WeightSource& base);

// Of its content: two with the same compute the same.
uint64_t lora_fingerprint(const LoraAdapter& adapter);

// Rows of a module's matrix as floats, one after the other.
std::vector<float> lora_rows(const TensorInfo& tensor, int64_t first, int64_t n);

// Adds scale * B A to rows [first_row, first_row + rows.size() / in) of the weight.
void add_lora(const LoraModule& module, int64_t first_row, std::span<float> rows);

}  // namespace penstock
