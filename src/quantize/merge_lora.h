// A checkpoint with a LoRA adapter added to its weights: W + scale * B A.
#pragma once
#include "formats/lora.h"

namespace penstock {

// Writes the base with the adapter added, in the base's format: a GGUF file, or a directory with
// model.safetensors and the base's other files. Every weight keeps its type; those that change are
// rounded to it. The adapter has the base's format (PEFT's for a directory). Errors: as
// check_lora_base(); kUnsupported for a weight whose type has no encoder and for directories that
// are quantized; kInvalidArgument when the output exists; kIo, kResourceExhausted.
Status merge_lora(const WeightSource& base, const LoraAdapter& adapter,
                  const std::filesystem::path& out);

}  // namespace penstock
