// Makes a quantized checkpoint of another one: GGUF or Hugging Face to either format.
#pragma once
#include <filesystem>

#include "quantize/plan/job.h"

namespace penstock {

Naming output_naming(const std::filesystem::path& out);

// Errors: those of reading; kInvalidArgument (the recipe does not fit, or a weight is not
// finite, with the tensor's name); kResourceExhausted (disk full); kCancelled (by should_stop).
// After an error, finished parts stay beside the output (OUT.parts), and the same job resumes
// from them.
Result<QuantizeReport> quantize(const QuantizeJob& job);

}  // namespace penstock
