// Makes a quantized checkpoint of another: GGUF or Hugging Face in, either out.
#pragma once
#include <filesystem>

#include "quantize/plan/job.h"

namespace penstock {

Naming output_naming(const std::filesystem::path& out);

// Errors: of reading; kInvalidArgument for a recipe that does not fit and for weights that are not
// finite (with the tensor's name); kResourceExhausted when the disk is full; kCancelled when
// should_stop said so. Finished parts stay beside the output (OUT.parts) after an error, and the
// same job goes on from them.
Result<QuantizeReport> quantize(const QuantizeJob& job);

}  // namespace penstock
