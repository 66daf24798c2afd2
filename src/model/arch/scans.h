// Functions that architectures with scans of Mamba 2 share; in granite_hybrid.cc.
#pragma once
#include "model/arch/archs.h"
#include "model/blocks/state_space.h"

namespace penstock {

// Reads which layers have attention or (with one_mixer) a feed-forward. Returns the indices of
// those with a scan.
std::vector<size_t> read_hybrid_layers(ConfigReader& reader, ModelConfig& config);
ScanConfig read_scan(ConfigReader& reader, const ModelConfig& config);
// Calls both. All layers with a scan share one mixer.
void read_scanning_layers(ConfigReader& reader, ModelConfig& config);
void describe_scans(ConfigWriter& writer, const ModelConfig& config);
void bamba_names(NameTable& names, const ModelConfig& config);

}  // namespace penstock
