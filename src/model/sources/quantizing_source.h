// Quantization at load: a checkpoint whose matrices are encoded as they are read.
#pragma once
#include <memory>
#include <string_view>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

// `type`: a file type of GGUF (ftype.h), which also rounds the embedding and the vocabulary
// projection; or a type by group (quant/group_types.h: int8, int4, nf4, w8a8, ...) for the linear
// layers of the layers, in groups of the type's size or, where that does not divide the inputs, of
// 64, 32 or a whole row. Both as `penstock quantize --type` writes them. Matrices of at least 16
// bits per weight are rounded to nearest when they are looked up and given back on drop(): memory
// for one at a time. Not for several threads at once while the model loads. Errors:
// kInvalidArgument for an unknown type; kUnsupported for a checkpoint that is quantized already;
// when it is read, kCorruptFile for a weight that is not finite (GGUF types: the matrix stays as it
// is).
Result<std::unique_ptr<WeightSource>> make_quantizing_source(std::unique_ptr<WeightSource> source,
                                                             std::string_view type, int threads);

}  // namespace penstock
