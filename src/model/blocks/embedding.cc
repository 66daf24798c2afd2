#include "model/blocks/embedding.h"

#include "model/blocks/difference.h"

namespace penstock {

std::string_view difference(const EmbeddingConfig& a, const EmbeddingConfig& b) {
  return first_difference({{"tied embeddings", a.tied == b.tied},
                           {"embedding scale", nearly(a.scale, b.scale)},
                           {"norm of embeddings", a.norm == b.norm && a.bare_norm == b.bare_norm},
                           {"width of embeddings", a.width == b.width}});
}

std::string_view difference(const PositionsConfig& a, const PositionsConfig& b) {
  return first_difference({{"positions", a.learned == b.learned && a.computed == b.computed}});
}

std::string_view difference(const OutputConfig& a, const OutputConfig& b) {
  return first_difference(
      {{"logit scale", nearly(a.scale, b.scale)},
       {"soft cap of logits", nearly(a.softcap, b.softcap)},
       {"rows of the output matrix", a.unit_rows == b.unit_rows && a.rows == b.rows}});
}

}  // namespace penstock
