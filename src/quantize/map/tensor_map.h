// What every tensor of a checkpoint is in the decoder, and what it is called and how it is laid out
// in the file to be written.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "formats/prequantized.h"
#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "model/sources/ftype.h"
#include "model/tensors/specs.h"

namespace penstock {

// One matrix or vector.
struct MappedTensor {
  // names in the source and in the output; expert matrices of a GGUF file share one
  std::string in, out;
  bool is_matrix = false;
  // a projection inside a layer: what quantized Hugging Face checkpoints quantize
  bool is_linear = false;
  WeightRole role = WeightRole::kQ;
  Site site = Site::kNone;
  Part part = Part::kOther;
  bool is_bias = false;
  int layer = -1, expert = -1;
  // as it is used: [outputs, inputs]; vectors have one row
  int rows = 0, cols = 0;
  bool in_transposed = false, out_transposed = false;  // stored [inputs, outputs]
  int in_expert = -1;                                  // its index in a tensor of all experts
  // Of a stored matrix of in_rows rows it is those from in_first_row on; 0: it is all of it.
  int in_first_row = 0, in_rows = 0;
  // written [rows, 1, cols], as PyTorch keeps a convolution by channel
  bool out_deep = false;
  int out_experts = 0;  // > 0: it goes to a tensor of so many experts
  // > 0: which has so many rows of each, of several matrices one after the other
  int out_rows = 0;
  bool goes_on = false;  // not with its first
  // among those of its role, where not every layer has one
  int nth = -1;
  // row r of the output is row rows_from[r] of the source; empty: as they are
  std::vector<int> rows_from;
  std::vector<int> cols_from;  // likewise of its inputs
  // it is these rows of the in_rows that are stored; empty: rows in_first_row to the last
  std::vector<int> picked;
  enum class Function : uint8_t { kNone, kMinusExp, kLogOfMinus, kOne };
  Function function = Function::kNone;  // of every element
  float add = 0;                        // to every element (norms stored less one)
  // By what every row of the output is multiplied, of a vector every element; empty: as they are.
  std::vector<float> factors;
};

struct TensorMap {
  std::vector<MappedTensor> outside;              // embedding, positions, final norm, head
  std::vector<std::vector<MappedTensor>> layers;  // [n_layers]
  MixedModel model;
  // The layer that predicts a token further is among those outside: no method changes it.
  bool has_next_token = false;
  // tensors of it that are copies of the model's own, and are not written
  std::vector<std::string> copies;

  const MappedTensor* find_linear(int layer, std::string_view in) const;
};

// What a file of this naming says of the model: where the map multiplies weights, nothing else
// does.
ModelConfig config_in(const ModelConfig& config, Naming naming);

// Errors: kUnsupported for what the other format cannot say; kCorruptFile for a missing tensor.
Result<TensorMap> map_tensors(const WeightSource& source, const ModelConfig& config, Naming out);

// A source that is already quantized by another tool, or plain.
class TensorReader {
 public:
  static Result<TensorReader> open(const WeightSource& source);
  // [rows, cols] as the source's configuration uses them. Errors: kCorruptFile; a NaN or infinite
  // weight is kInvalidArgument with the tensor's name.
  Result<std::vector<float>> read(const MappedTensor& tensor) const;
  // The encoding in the source; F16 for layers that another tool quantized.
  QuantType type(const MappedTensor& tensor) const;

 private:
  Result<std::vector<float>> stored(const MappedTensor& tensor) const;
  Result<std::vector<float>> picked(const MappedTensor& tensor) const;
  const WeightSource* source_ = nullptr;
  std::shared_ptr<Prequantized> prequantized_;
};

// Rows of `width` elements in the order (and, for norms, with the offset) that the output's
// configuration wants.
template <class T>
void to_output_rows(const MappedTensor& tensor, size_t width, std::vector<T>& rows);
void to_output(const MappedTensor& tensor, std::vector<float>& values);

// The architecture's name in the other format ("mistral" is "llama" in GGUF; "llama" with experts
// is "mixtral" in Hugging Face).
std::string arch_in(const ModelConfig& config, Naming naming);

}  // namespace penstock
