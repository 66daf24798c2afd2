// File types: the encoding of every weight of a model under a name like "q4_k_m". Most types mix
// encodings.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/blocks/config.h"
#include "model/tensors/specs.h"
#include "quant/quant_type.h"

namespace penstock {

// Layers that get more bits than others.
enum class MoreBits : uint8_t {
  kNowhere,
  kFirstTwo,
  kFirstFour,
  kFirstSixteenth,  // of the layers
  kFirstEighth,
  kEnds,       // the first and the last eighth
  kScattered,  // kEnds and every third layer between them, where errors cost most
};
struct LayerTypes {
  QuantType usual;
  MoreBits where = MoreBits::kNowhere;
  QuantType more = usual;
};

// llama.cpp's rules for one name.
struct FileType {
  std::string_view name;
  // general.file_type, as llama.cpp numbers them, or -1
  int number = -1;
  QuantType base;  // for every role without an own field
  // the vocabulary projection (and a tied embedding)
  QuantType output = QuantType::kQ6_K;
  QuantType embedding = base;
  QuantType query_key = base;
  LayerTypes value = {base};
  // Values that four or more query heads share.
  std::optional<QuantType> value_shared = {};
  QuantType attention_output = base;
  // attention_output in a model with eight experts, if base has fewer bits.
  QuantType output_beside_eight = QuantType::kQ5_K;
  LayerTypes gate_up = {base}, down = {base};
  std::optional<LayerTypes> down_of_eight = {};  // in a model with eight experts
  // Types for models without an importance of inputs.
  LayerTypes value_unweighed = value, down_unweighed = down;
};

// Returns a file type with one encoding for all matrices.
FileType uniform_file_type(std::string_view name, int number, QuantType type);

// Properties of a model that the rules depend on.
struct MixedModel {
  int n_layers = 0;
  bool tied = false;
  int heads_per_kv_head = 1;
  int n_experts = 0;
  // errors are weighed by an importance of the inputs
  bool weighed = false;
  // layers that have a projection of values; 0 = all
  int n_values = 0;

  static MixedModel of(const ModelConfig& config, bool weighed = false);
};

// THE list of types that mix encodings. The name of every encoding is a type, too: all matrices
// have it (with ternary ones only those of the layers).
std::span<const FileType> file_types();
Result<FileType> find_file_type(std::string_view name);
std::string file_type_names();  // "q2_k, q2_k_s, ..."

// Returns the encoding of one matrix. Rows that are no whole number of blocks get the next larger
// encoding that fits, F16 at last.
QuantType choose_type(const FileType& ftype, const MixedModel& model, WeightRole role, int layer,
                      int cols);

}  // namespace penstock
