// Phi-3, 3.5 and 4: fused projections (found as tensors), sliding window, longrope.
#include "model/arch/archs.h"

namespace penstock {

void configure_phi3(ConfigReader& reader, ModelConfig& config) { read_windows(reader, config, 0); }

}  // namespace penstock
