// Which encoding each weight of a model gets under a name like "q4_k_m": most files use more than one.
#pragma once
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/quant_type.h"

namespace penstock {

// What a matrix does; the rules are by role and layer.
enum class WeightRole : uint8_t { kEmbedding, kOutput, kQ, kK, kV, kO, kGateUp, kDown, kRouter };

struct Mixture {
  std::string_view name;
  QuantType base;               // of everything the rules below do not name
  QuantType output;             // the vocabulary projection (and a tied embedding)
  QuantType value, value_more;  // v: usual layers, and the layers that get more bits
  QuantType down, down_more;    // the down projection likewise
  QuantType attention_output;
};

// THE list of mixtures; every quant type's own name is one too (all matrices in it; of the ternary ones the
// layers' only).
std::span<const Mixture> mixtures();
Result<Mixture> find_mixture(std::string_view name);
// general.file_type of a mixture, as llama.cpp numbers them; -1 for those it has no number for.
int gguf_file_type(std::string_view mixture);

// The encoding of one matrix. Rows that are no whole number of blocks get the next larger encoding that fits,
// F16 at last.
QuantType choose_type(const Mixture& mixture, WeightRole role, int layer, int n_layers, bool tied, int cols);

}  // namespace penstock
