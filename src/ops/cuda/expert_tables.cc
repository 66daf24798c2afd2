#include "ops/cuda/expert_tables.h"

#include <cstring>

#include "ops/cuda/cuda_vector.h"
#include "ops/cuda/packed_weight.h"

namespace penstock::cuda {

// The table is compared, not believed: others may lie where the ones before did.
const ExpertWeight* ExpertTables::on_device(std::span<const std::unique_ptr<Weight>> weights,
                                            std::span<const std::unique_ptr<Vector>> biases) {
  std::vector<ExpertWeight> table(weights.size());
  std::memset(static_cast<void*>(table.data()), 0, table.size() * sizeof(ExpertWeight));
  for (size_t e = 0; e < weights.size(); ++e) {
    table[e].weight = static_cast<const CudaWeight&>(*weights[e]).on_device();
    table[e].bias = biases.empty() ? nullptr : device_data(biases[e].get());
  }
  Table& kept = tables_[weights.data()];
  const size_t bytes = table.size() * sizeof(ExpertWeight);
  const bool same =
      kept.host.size() == table.size() && std::memcmp(kept.host.data(), table.data(), bytes) == 0;
  if (same) return kept.memory.as<const ExpertWeight>();
  Result<Memory> memory = Memory::make(device_, bytes);
  if (!memory) {
    device_.give_up(memory.error());
    return nullptr;
  }
  kept.memory = std::move(*memory);
  device_.copy_in(kept.memory.data(), table.data(), bytes);
  kept.host = std::move(table);
  return kept.memory.as<const ExpertWeight>();
}

}  // namespace penstock::cuda
