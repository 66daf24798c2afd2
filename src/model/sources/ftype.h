// File types: which encoding each weight of a model gets under a name like "q4_k_m". Most files use more than one.
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

// Which layers get more bits than the others.
enum class MoreBits : uint8_t {
  kNowhere,
  kFirstTwo,
  kFirstFour,
  kFirstSixteenth,  // of the layers
  kFirstEighth,
  kEnds,       // the first and the last eighth
  kScattered,  // these and every third between: where errors cost most
};
struct LayerTypes {
  QuantType usual;
  MoreBits where = MoreBits::kNowhere;
  QuantType more = usual;
};

// llama.cpp's rules for the name.
struct FileType {
  std::string_view name;
  int number = -1;                      // general.file_type, as llama.cpp numbers them, or -1
  QuantType base;                       // of everything that is not named
  QuantType output = QuantType::kQ6_K;  // the vocabulary projection (and a tied embedding)
  QuantType embedding = base;
  QuantType query_key = base;
  LayerTypes value = {base};
  std::optional<QuantType> value_shared = {};  // where four query heads or more share a value's
  QuantType attention_output = base;
  QuantType output_beside_eight =
      QuantType::kQ5_K;  // the same in a model of eight experts, where base has fewer bits
  LayerTypes gate_up = {base}, down = {base};
  std::optional<LayerTypes> down_of_eight = {};  // in a model of eight experts
  // Where no importance of inputs is known.
  LayerTypes value_unweighed = value, down_unweighed = down;
};

// One encoding for all matrices.
FileType uniform_file_type(std::string_view name, int number, QuantType type);

// What the rules look at beside the matrix.
struct MixedModel {
  int n_layers = 0;
  bool tied = false;
  int heads_per_kv_head = 1;
  int n_experts = 0;
  bool weighed = false;  // errors are weighed by an importance of the inputs
  int n_values = 0;      // layers that have a projection of values; 0 = all

  static MixedModel of(const ModelConfig& config, bool weighed = false);
};

// THE list of those that mix encodings; every other encoding's own name is one too (all matrices in it; of the ternary
// ones the layers' only).
std::span<const FileType> file_types();
Result<FileType> find_file_type(std::string_view name);
std::string file_type_names();  // "q2_k, q2_k_s, ..."

// The encoding of one matrix. Rows that are no whole number of blocks get the next larger encoding that fits,
// F16 at last.
QuantType choose_type(const FileType& ftype, const MixedModel& model, WeightRole role, int layer, int cols);

}  // namespace penstock
