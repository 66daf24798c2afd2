// The methods that open_prequantized() chooses from, one file each, and their shared helpers.
#pragma once
#include <nlohmann/json.hpp>

#include "formats/mapped_source.h"
#include "formats/prequantized.h"

namespace penstock {

// config: the object quantization_config of config.json. The source must outlive the result.
using OpenPrequantized = Result<std::unique_ptr<Prequantized>> (*)(const WeightSource& source,
                                                                   const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_gptq(const WeightSource& source,
                                                const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_awq(const WeightSource& source,
                                               const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_bitsandbytes(const WeightSource& source,
                                                        const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_compressed_tensors(const WeightSource& source,
                                                              const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_bitnet(const WeightSource& source,
                                                  const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_block_fp8(const WeightSource& source,
                                                     const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_model_optimizer(const WeightSource& source,
                                                           const nlohmann::json& config);
Result<std::unique_ptr<Prequantized>> open_auto_round(const WeightSource& source,
                                                      const nlohmann::json& config);

// Opens the NVFP4 layers of a GGUF file; null when there are none.
std::unique_ptr<Prequantized> open_gguf_nvfp4(const WeightSource& source);

// The tensors of one layer, with the checks that every method needs.
class LayerTensors {
 public:
  LayerTensors(const WeightSource& source, std::string_view layer)
      : source_(source), layer_(layer) {}

  // "FILE: layer NAME", for messages.
  std::string where() const;
  // The tensor LAYER.SUFFIX or null.
  const TensorInfo* find(std::string_view suffix) const;
  // The tensor of this type and number of dimensions, or an error.
  Result<const TensorInfo*> require(std::string_view suffix, QuantType type, size_t n_dims) const;
  // Any floating-point tensor, in F32, or an error.
  Result<std::vector<float>> floats(std::string_view suffix) const;

 private:
  const WeightSource& source_;
  std::string layer_;
};

// Reads the tensor LAYER.SUFFIX of each input's group (g_idx), if there is one. When the groups are
// not in order, sets matrix.input_order to the inputs sorted by group. REQUIRES: the matrix's sizes
// are set. Errors: kCorruptFile; kUnsupported for groups of different sizes.
Status set_input_order(const LayerTensors& tensors, std::string_view suffix, GroupedMatrix& matrix);

// Copy a tensor's elements, converted to F32 or as I32. REQUIRES: a floating-point tensor; a tensor
// of type kI32.
std::vector<float> tensor_floats(const TensorInfo& tensor);
std::vector<int32_t> tensor_int32(const TensorInfo& tensor);

// Transposes [n_groups, rows] to [rows, n_groups].
template <class T>
std::vector<T> transposed(const std::vector<T>& in, size_t n_groups, size_t rows) {
  std::vector<T> out(in.size());
  for (size_t g = 0; g < n_groups; ++g) {
    for (size_t r = 0; r < rows; ++r) out[r * n_groups + g] = in[g * rows + r];
  }
  return out;
}

// The integer at config[key], or fallback when it is absent; an error when it is something else or
// out of range.
Result<int> config_int(const nlohmann::json& config, const char* key, int fallback, int low,
                       int high);

}  // namespace penstock
