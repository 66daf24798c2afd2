#include "kernels/probe_kernels.h"

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"

namespace penstock {

std::span<const ReadProbe> read_probes(const KernelTable& table) {
  if (!table.probes->reads.empty() || table.extends == nullptr) return table.probes->reads;
  return read_probes(*table.extends);
}

std::vector<ComputeProbe> compute_probes(const KernelTable& table) {
  std::vector<ComputeProbe> probes;
  if (table.extends != nullptr) probes = compute_probes(*table.extends);
  if (table.extends != nullptr && table.probes == table.extends->probes)
    return probes;  // it has none of its own
  for (const ComputeProbe& unit : table.probes->units) {
    if (unit.needs == nullptr || cpu_features().*unit.needs) probes.push_back(unit);
  }
  return probes;
}

}  // namespace penstock
