// OLMo2: norms after attention and feed-forward only, and over whole rows of q and k.
#include "model/arch/archs.h"

namespace penstock {

void configure_olmo2(ConfigReader&, ModelConfig& config) {
  config.norms = NormPlacement::kPost;
  config.qk_norm = QkNorm::kRow;
}

}  // namespace penstock
