// What architectures with scans of Mamba 2 share; in granite_hybrid.cc.
#pragma once
#include "model/arch/archs.h"
#include "model/blocks/state_space.h"

namespace penstock {

// Which layers attend or (with one_mixer) feed forward. Gives the indices of those that scan.
std::vector<size_t> read_hybrid_layers(ConfigReader& reader, ModelConfig& config);
ScanConfig read_scan(ConfigReader& reader, const ModelConfig& config);
// Both: the layers that scan share one mixer.
void read_scanning_layers(ConfigReader& reader, ModelConfig& config);
void describe_scans(ConfigWriter& writer, const ModelConfig& config);
void bamba_names(NameTable& names, const ModelConfig& config);

}  // namespace penstock
