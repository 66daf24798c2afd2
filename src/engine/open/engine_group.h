// The engines of one process that serve one model together (EngineConfig::data_parallel_size): each has a cache, a scheduler and CPUs
// of its own; the weights are there once for every node of memory, and with several ranks each engine's own.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "engine/open/open.h"
#include "formats/weight_source.h"
#include "model/model.h"
#include "parallel/host_cpus.h"

namespace penstock {

struct EnginePlace {
  std::vector<int> cpus;  // of rank 0; none: all that the process may use
  int node = 0;           // that these are on
};

// What is the same for all engines of a group; an engine alone is a group of one.
struct EngineGroup {
  std::vector<EnginePlace> places{EnginePlace()};
  int n_copies = 1;  // of the weights
  int64_t cache_bytes =
      0;  // what the cache of each may take of this host's memory for each rank; 0: not known yet
  std::shared_ptr<std::atomic<uint64_t>>
      next_request;  // requests are numbered together; null: by the engine alone

  int size() const { return static_cast<int>(places.size()); }
};

// A model as it was loaded before, or where to load it from.
struct ModelCopy {
  std::shared_ptr<WeightSource> source;
  std::shared_ptr<Model> model;  // null: to be loaded
};

// Engine `index` of a group. REQUIRES: a resolved config; one call at a time, in the order of the engines. Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_member(EngineGroup& group, int index, ModelCopy copy,
                                            EngineConfig config, const LoadProgress& progress,
                                            SpeculationInputs inputs);

// The whole model for one backend, as the configuration wants it. REQUIRES: one rank; a source that encodes as the configuration says.
Result<std::shared_ptr<Model>> load_whole(const WeightSource& source, Ops& ops, const EngineConfig& config,
                                          const LoadProgress& progress);

// Where n engines compute among these CPUs, which are in order of nodes: shares of them, each on one node where that can be.
std::vector<EnginePlace> engine_places(std::span<const HostCpu> cpus, int n);

// All engines of a configuration behind one. REQUIRES: a resolved config with data_parallel_size above 1, and as many places.
// Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_engines(std::vector<EnginePlace> places,
                                             std::unique_ptr<WeightSource> source, const EngineConfig& config,
                                             const LoadProgress& progress, SpeculationInputs inputs);

}  // namespace penstock
