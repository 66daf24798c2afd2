// Checkpoints that were quantized before: in Hugging Face's format GPTQ, AWQ, bitsandbytes,
// compressed-tensors, FP8, NVIDIA's Model Optimizer and BitNet; in GGUF files NVFP4 with a scale per
// matrix. A linear layer is assembled from several tensors (qweight, scales, ...) into one GroupedMatrix that points
// into the file; all other tensors are plain and found by WeightSource::find.
#pragma once
#include <memory>

#include "formats/weight_source.h"
#include "quant/grouped_matrix.h"

namespace penstock {

class Prequantized {
 public:
  virtual ~Prequantized() = default;

  // Name of the method in config.json ("gptq").
  virtual std::string_view method() const = 0;

  // Returns the layer of this name ("model.layers.0.mlp.up_proj", without ".weight"); nothing when
  // it is not quantized or does not exist. Errors: kCorruptFile, kUnsupported. The matrix is valid
  // as long as the source.
  virtual Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const = 0;
};

// Opens the quantized layers of a checkpoint; null when it has none. Errors: kUnsupported for a
// method or setting that cannot be read, kCorruptFile for an impossible one. The source must
// outlive the result.
Result<std::unique_ptr<Prequantized>> open_prequantized(const WeightSource& source);

}  // namespace penstock
