// The role of every tensor of a checkpoint in the decoder, and its name and layout in the
// output.
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
  // a projection of a layer, which quantized Hugging Face checkpoints quantize
  bool is_linear = false;
  WeightRole role = WeightRole::kQ;
  Site site = Site::kNone;
  Part part = Part::kOther;
  bool is_bias = false;
  int layer = -1, expert = -1;
  // shape in use: [outputs, inputs]; vectors have one row
  int rows = 0, cols = 0;
  bool in_transposed = false, out_transposed = false;  // stored [inputs, outputs]
  int in_expert = -1;                                  // its index in a tensor of all experts
  // The matrix is a part of a stored matrix of in_rows rows, from in_first_row on; 0: all of it.
  int in_first_row = 0, in_rows = 0;
  // written as [rows, 1, cols], PyTorch's shape of a depthwise convolution
  bool out_deep = false;
  int out_experts = 0;  // > 0: number of experts in the output tensor
  // > 0: rows per expert in that tensor, if it joins several matrices; without experts, its rows
  int out_rows = 0;
  bool goes_on = false;  // it is not the first of the joined matrices
  // index among tensors of its role, if not every layer has one
  int nth = -1;
  // row r of the output is row rows_from[r] of the source; empty: same order
  std::vector<int> rows_from;
  std::vector<int> cols_from;  // likewise for inputs
  // the rows of the in_rows stored ones; empty: in_first_row and the following
  std::vector<int> picked;
  enum class Function : uint8_t { kNone, kMinusExp, kLogOfMinus, kExp, kLog, kOne, kUnitRows };
  // applied to every element; kUnitRows divides rows by their lengths
  Function function = Function::kNone;
  float add = 0;  // added to every element (norms stored minus one)
  // Factor of every row of the output (vectors: of every element); empty: none.
  std::vector<float> factors;
};

struct TensorMap {
  std::vector<MappedTensor> outside;              // embedding, positions, final norm, head
  std::vector<std::vector<MappedTensor>> layers;  // [n_layers]
  MixedModel model;
  // `outside` includes so many MTP layers, which no method changes.
  int n_next_tokens = 0;
  // tensors of MTP layers that are copies of the model's own and are not written
  std::vector<std::string> copies;

  const MappedTensor* find_linear(int layer, std::string_view in) const;
};

// Returns the configuration of a file with this naming. Factors that the map multiplies into
// weights are 1 in it.
ModelConfig config_in(const ModelConfig& config, Naming naming);

// Errors: kUnsupported (the other format cannot express it), kCorruptFile (a tensor is missing).
Result<TensorMap> map_tensors(const WeightSource& source, const ModelConfig& config, Naming out);

// Reads tensors of a source that is plain, or quantized by another tool.
class TensorReader {
 public:
  static Result<TensorReader> open(const WeightSource& source);
  // Returns [rows, cols] as the source's configuration uses them. Errors: kCorruptFile;
  // kInvalidArgument with the tensor's name if a weight is NaN or infinite.
  Result<std::vector<float>> read(const MappedTensor& tensor) const;
  // Returns the encoding in the source; F16 for layers quantized by another tool.
  QuantType type(const MappedTensor& tensor) const;

 private:
  Result<std::vector<float>> stored(const MappedTensor& tensor) const;
  Result<std::vector<float>> picked(const MappedTensor& tensor) const;
  const WeightSource* source_ = nullptr;
  std::shared_ptr<Prequantized> prequantized_;
};

// Reorders rows of `width` elements for the output's configuration; to_output() also applies
// function, offset and factors.
template <class T>
void to_output_rows(const MappedTensor& tensor, size_t width, std::vector<T>& rows);
void to_output(const MappedTensor& tensor, std::vector<float>& values);

// Returns the name of the architecture in the other format ("mistral" is "llama" in GGUF; "llama"
// with experts is "mixtral" in Hugging Face).
std::string arch_in(const ModelConfig& config, Naming naming);

}  // namespace penstock
