// Encodes a layer's weights as tensors of a file.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/map/tensor_map.h"
#include "quantize/plan/recipe.h"

namespace penstock {

// A tensor ready to be written.
struct EncodedTensor {
  std::string name;
  QuantType type = QuantType::kF32;
  std::vector<int64_t> shape;  // outermost first
  std::vector<std::byte> bytes;
};

// A method's decisions about one linear layer, beside its values.
struct LinearDecision {
  std::optional<GroupedCodes> codes;  // none: the encoder rounds to nearest
  // [cols] or empty: weight of each input's squared error
  std::vector<float> importance;
  float activation_scale = 0;  // static activations only
};

// For plain and GGUF output. values: [rows, cols] as used; out_transposed is applied here.
Result<EncodedTensor> encode_plain(ThreadPool& pool, const MappedTensor& tensor, QuantType type,
                                   std::vector<float> values, const float* importance);

// Returns the encoding of a tensor under the recipe. source_type: its encoding in the source.
QuantType plain_type(const Recipe& recipe, const MappedTensor& tensor, QuantType source_type,
                     const TensorMap& map);

// Rounds to nearest with this coding.
Result<GroupedCodes> round_to_nearest(ThreadPool& pool, const GroupCoding& coding,
                                      const std::vector<float>& values, int rows, int cols,
                                      const float* importance, bool search);

// Returns the tensors of a quantized layer in the recipe's layout (Hugging Face).
Result<std::vector<EncodedTensor>> encode_layer(ThreadPool& pool, const Recipe& recipe,
                                                const MappedTensor& tensor,
                                                const std::vector<float>& values,
                                                const LinearDecision& decision);

// Encodes codes of groups of 32 as blocks of Q4_0, Q5_0 or Q8_0.
Result<EncodedTensor> encode_blocks(const MappedTensor& tensor, QuantType type,
                                    const GroupedCodes& codes);

// Returns quantization_config of config.json; null for plain output. kept: names of linear layers
// that are not quantized.
nlohmann::json quantization_config(const Recipe& recipe, const std::vector<std::string>& kept);

}  // namespace penstock
