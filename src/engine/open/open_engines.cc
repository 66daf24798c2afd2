// Opens the engines of a process that share one model.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/open/engine_group.h"
#include "engine/ranks/rank_grid.h"
#include "engine/replicas/engines.h"

namespace penstock {
namespace {

// Returns the configuration of one engine, derived from the process's.
EngineConfig config_of_engine(EngineConfig config, const EngineGroup& group, int index) {
  const EnginePlace& place = group.places[static_cast<size_t>(index)];
  const int own_cpus = place.cpus.empty() ? 1 : static_cast<int>(place.cpus.size());
  if (config.threads == 0 && grid_of(config).size() == 1)
    config.threads = std::clamp(available_cpus() / group.size(), 1, own_cpus);
  return config;
}

// Loads the weights of the engines on one node, packed by the threads of all of them.
Result<std::shared_ptr<Model>> load_on_node(const EngineGroup& group, int node,
                                            const WeightSource& source, const EngineConfig& config,
                                            const LoadProgress& progress) {
  OpsConfig loader{config.threads, config.batch_invariant, config.thread_weight};
  int n_engines = 0;
  for (const EnginePlace& place : group.places) {
    if (place.node != node) continue;
    loader.cpus.insert(loader.cpus.end(), place.cpus.begin(), place.cpus.end());
    ++n_engines;
  }
  loader.n_threads *= n_engines;
  if (group.n_copies == 1) loader.cpus.clear();
  ASSIGN_OR_RETURN(const auto ops, make_ops(config.backend, loader));
  if (!ops->computes_here()) {
    return errorf(ErrorCode::kUnsupported,
                  "data_parallel_size {}: expected 1 on backend {}, whose engines share no weights",
                  group.size(), ops->name());
  }
  ASSIGN_OR_RETURN(auto model, load_whole(source, *ops, config, progress));
  model->reserve_adapter_slots(group.size() * config.max_loras);
  return model;
}

}  // namespace

std::vector<EnginePlace> engine_places(std::span<const HostCpu> cpus, int n) {
  std::vector<EnginePlace> places(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    EnginePlace& place = places[static_cast<size_t>(i)];
    const std::vector<HostCpu> own = share_of_cpus(cpus, i, n);
    for (const HostCpu& cpu : own) place.cpus.push_back(cpu.cpu);
    place.node = own.empty() ? 0 : own.front().node;
  }
  return places;
}

Result<std::unique_ptr<Engine>> open_engines(std::vector<EnginePlace> places,
                                             std::unique_ptr<WeightSource> source,
                                             const EngineConfig& wanted,
                                             const LoadProgress& progress,
                                             SpeculationInputs inputs) {
  EngineGroup group;
  group.places = std::move(places);
  group.next_request = std::make_shared<std::atomic<uint64_t>>(1);
  const bool shares = grid_of(wanted).size() == 1;
  std::set<int> nodes;
  for (const EnginePlace& place : group.places) nodes.insert(place.node);
  group.n_copies = shares ? static_cast<int>(nodes.size()) : group.size();

  std::shared_ptr<WeightSource> shared = std::move(source);
  std::map<int, std::shared_ptr<Model>> models;  // by NUMA node
  const std::vector<TokenId> corpus = inputs.corpus;
  const double acceptance = inputs.acceptance;
  std::vector<std::unique_ptr<Engine>> engines;
  EngineConfig config = wanted;
  for (int i = 0; i < group.size(); ++i) {
    const EngineConfig own = config_of_engine(config, group, i);
    ModelCopy copy{shared, nullptr};
    if (shares) {
      const int node = group.places[static_cast<size_t>(i)].node;
      if (!models.contains(node)) {
        ASSIGN_OR_RETURN(models[node], load_on_node(group, node, *shared, own, progress));
      }
      copy.model = models[node];
    }
    if (i > 0) inputs = {nullptr, corpus, acceptance};
    ASSIGN_OR_RETURN(auto engine,
                     open_member(group, i, std::move(copy), own, progress, std::move(inputs)));
    config.max_model_len = engine->config().max_model_len;
    engines.push_back(std::move(engine));
  }
  log().info("{} engines, {} threads each, weights {}", group.size(),
             engines.front()->info().n_threads,
             group.n_copies == 1 ? "shared" : fmt::format("{} times", group.n_copies));
  return std::make_unique<Engines>(std::move(engines), group.n_copies);
}

}  // namespace penstock
