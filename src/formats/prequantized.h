// Hugging Face checkpoints that somebody quantized: GPTQ, AWQ, bitsandbytes, compressed-tensors, block FP8,
// BitNet; of GGUF files, NVFP4 with a number for each matrix. Their linear layers are assembled from several tensors (qweight, scales, ...) into one
// GroupedMatrix that still points into the file; everything else in the checkpoint is plain and found by
// WeightSource::find.
#pragma once
#include <memory>

#include "formats/weight_source.h"
#include "quant/grouped_matrix.h"

namespace penstock {

class Prequantized {
 public:
  virtual ~Prequantized() = default;

  // How config.json calls the method ("gptq").
  virtual std::string_view method() const = 0;

  // The layer of this name ("model.layers.0.mlp.up_proj", without ".weight"); nothing when it is stored
  // plainly or not at all. Errors: kCorruptFile, kUnsupported. The matrix is valid as long as the source.
  virtual Result<std::optional<GroupedMatrix>> find_linear(std::string_view layer) const = 0;
};

// Null for a checkpoint that is not quantized this way. Errors: kUnsupported for a method or setting we
// cannot read, kCorruptFile for an impossible one. The source must outlive the result.
Result<std::unique_ptr<Prequantized>> open_prequantized(const WeightSource& source);

}  // namespace penstock
