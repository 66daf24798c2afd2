// penstock plan of a GPU: which layers' experts are left to the CPU, and how fast one sequence is
// then at most. Rates are measured or assumed; nothing is computed with the model.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "formats/weight_source.h"
#include "model/blocks/config.h"
#include "model/load/expert_places.h"

namespace CLI {
class App;
}

namespace penstock {

// Bytes per second, and seconds.
struct GpuRates {
  double gpu_read = 0, host_read = 0, link = 0;
  double exchange = 0;  // for a layer: inputs to the host and results back, without their bytes
};

// Returns the seconds of one decoded token. places: empty: no experts are on the host.
double token_seconds(const ModelConfig& config, const DeviceBytes& bytes,
                     const ExpertPlaces& places, const GpuRates& rates);

struct GpuPlan {
  explicit GpuPlan(CLI::App& app);

  struct Outcome {
    int64_t memory = 0;        // of the GPU
    int64_t weight_bytes = 0;  // on the GPU
    int64_t host_bytes = 0;    // experts on the host
    int64_t copy_bytes = 0;    // of the GPU, for copies of those that are used most
    ExpertPlaces places;
    bool fits = false;
    GpuRates rates;
    bool gpu_measured = false, host_measured = false;
    double tokens_per_second = 0;    // of one sequence, at most
    double all_experts_on_host = 0;  // the same with cpu_moe
  };
  // Plans for a GPU that the flags describe, or for this machine's. nullopt: neither is there. The
  // cache of one sequence takes sequence_bytes. Errors: of flags; those of wished_places().
  Result<std::optional<Outcome>> plan(const WeightSource& source, const ModelConfig& config,
                                      int64_t sequence_bytes) const;
  static void print(const Outcome& result);
  static nlohmann::json json(const Outcome& result);

  // Refuses flags that mean nothing without a GPU. why: what there is in its place.
  Status check_unused(std::string_view why) const;
  // Returns the bytes for copies of the host's experts, of `left` for them and the KV cache.
  int64_t copy_bytes(const Outcome& result, int64_t left) const;
  // Whether a flag describes a GPU.
  bool wanted() const { return !memory.empty(); }

  std::string memory, override_tensor;
  double gpu_gbps = 0, host_gbps = 0, link_gbps = 25;
  int n_cpu_moe = -1;
  int64_t expert_cache_memory = -1;
  bool cpu_moe = false;
};

}  // namespace penstock
