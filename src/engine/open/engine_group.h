// The engines of one process that serve one model together (EngineConfig::data_parallel_size): each
// has its own cache, scheduler and CPUs. There is one copy of the weights per NUMA node; with
// several ranks, one per engine.
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
  // CPUs of rank 0; empty: all that the process may use
  std::vector<int> cpus;
  int node = 0;  // NUMA node of these CPUs
};

// Settings and places shared by the engines of a group; a single engine is a group of one.
struct EngineGroup {
  std::vector<EnginePlace> places{EnginePlace()};
  int n_copies = 1;  // copies of the weights in memory
  // Bytes of this host's memory that the cache of each engine may take per rank; 0: not known yet.
  int64_t cache_bytes = 0;
  int64_t expert_room = 0;  // as Ops::set_expert_room(), of each engine
  // Counter of request numbers that the engines share; null: each engine has its own.
  std::shared_ptr<std::atomic<uint64_t>> next_request;

  int size() const { return static_cast<int>(places.size()); }
};

// A loaded model, or the source to load it from.
struct ModelCopy {
  std::shared_ptr<WeightSource> source;
  std::shared_ptr<Model> model;  // null: to be loaded
};

// Opens engine `index` of a group. REQUIRES: a resolved config; one call at a time, in the order of
// the engines. Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_member(EngineGroup& group, int index, ModelCopy copy,
                                            EngineConfig config, const LoadProgress& progress,
                                            SpeculationInputs inputs);

// Loads the whole model for a backend. REQUIRES: the configuration has one rank; the source has the
// encodings that config.quantize asks for.
Result<std::shared_ptr<Model>> load_whole(const WeightSource& source, Ops& ops,
                                          const EngineConfig& config, const LoadProgress& progress);

// Divides the CPUs, which must be in order of NUMA nodes, among n engines, each within one node if
// possible.
std::vector<EnginePlace> engine_places(std::span<const HostCpu> cpus, int n);

// Opens all engines of a configuration behind one Engine. REQUIRES: a resolved config with
// data_parallel_size above 1, and as many places. Errors: as Engine::open.
Result<std::unique_ptr<Engine>> open_engines(std::vector<EnginePlace> places,
                                             std::unique_ptr<WeightSource> source,
                                             const EngineConfig& config,
                                             const LoadProgress& progress,
                                             SpeculationInputs inputs);

}  // namespace penstock
