// A checkpoint with a LoRA adapter added to its weights: W + scale * B A.
#pragma once
#include "formats/lora.h"

namespace penstock {

// Writes the base with the adapter added, in the base's format: a GGUF file, or a directory with
// model.safetensors and the base's other files. Every weight keeps its type, to which changed
// weights are rounded. The adapter has the base's format (PEFT's for a directory). Errors: those of
// check_lora_base(); kUnsupported (a weight's type has no encoder, or a directory is quantized);
// kInvalidArgument (the output exists); kIo, kResourceExhausted.
Status merge_lora(const WeightSource& base, const LoraAdapter& adapter,
                  const std::filesystem::path& out);

}  // namespace penstock
