#include "kernels/probe_kernels.h"

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
    return probes;  // the table has no probes of its own
  probes.insert(probes.end(), table.probes->units.begin(), table.probes->units.end());
  return probes;
}

}  // namespace penstock
