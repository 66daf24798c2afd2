#include "cli/rank_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/cuts.h"
#include "model/stages.h"

namespace penstock {
namespace {

// Between ranks of one host: bench/communicator_bench.cc, two ranks on an EPYC of 2024.
constexpr double kHostLatency = 1e-6, kHostBytesPerSecond = 8e9;
constexpr double kSmallSum = 256 << 10;  // of all ranks together: what hosts sum all to all

// Of a token in these layers: one for each sub-layer that is cut.
int sums_of(const ModelCuts& cuts, const ModelConfig& whole, Shard::Range layers) {
  int n = 0;
  for (int i = layers.first; i < layers.first + layers.count; ++i) {
    const LayerConfig& layer = whole.layers[static_cast<size_t>(i)];
    if (layer.attention && cuts.heads().count < whole.n_heads) ++n;
    const bool cut =
        layer.moe ? cuts.expert_ffn().count < whole.expert_ffn_dim : cuts.ffn(i).count < whole.ffn_dim_of(i);
    if (cut) ++n;
  }
  return n;
}

// A model of some of the layers.
ModelConfig part_of(ModelConfig config, Shard::Range layers) {
  const auto first = config.layers.begin() + layers.first;
  config.layers = std::vector<LayerConfig>(first, first + layers.count);
  config.n_layers = layers.count;
  for (LayerConfig& layer : config.layers)
    if (layer.kv_layer >= 0) layer.kv_layer = std::max(0, layer.kv_layer - layers.first);
  return config;
}

// Parameters that a step of so many rows reads: of a mixture the experts that any of them takes, chosen evenly.
double active_parameters(ModelConfig config, int rows) {
  const auto of_one = static_cast<double>(config.n_active_parameters());
  if (config.n_experts == 0 || config.routing.n_active >= config.n_experts) return of_one;
  const double experts = config.n_experts, taken = config.routing.n_active,
               met = experts * (1 - std::pow(1 - taken / experts, rows));
  ++config.routing.n_active;
  return of_one + (met - taken) * (static_cast<double>(config.n_active_parameters()) - of_one);
}

}  // namespace

std::string Combination::text() const {
  return fmt::format("tensor {} x pipeline {} x data {}", tensor, stages, engines);
}

int64_t sequence_bytes(const CacheSpec& spec, int64_t tokens) {
  int64_t total = spec.state_bytes();
  for (const KvLayerSpec& layer : spec.layers) {
    int64_t kept = tokens;
    if (layer.window > 0 && layer.group > 0) kept = std::min<int64_t>(tokens, layer.window + spec.block_size);
    const int64_t blocks = (kept + spec.block_size - 1) / spec.block_size;
    total += blocks * spec.block_size * CacheSpec::token_bytes(layer, spec.dtype);
  }
  return total;
}

// Of one rank.
struct RankPlanner::Share {
  double weight_bytes = 0, kv_token_bytes = 0, sequence_bytes = 0;
  double read_bytes = 0, operations = 0;  // of a step
};

struct RankPlanner::StageCosts {
  Share most;
  int sums = 0;
  double compute_seconds = 0, sum_seconds = 0;
};

Result<std::vector<Shard::Range>> RankPlanner::stages(int n) const {
  const ModelConfig& config = model_.config;
  LayerBytes bytes;
  const int64_t table = int64_t{config.model_dim} * config.vocab_size;
  for (int i = 0; i < config.n_layers; ++i)
    bytes.layers.push_back(part_of(config, {i, 1}).n_parameters() -
                           (config.tied_embeddings ? table : 2 * table));
  bytes.output = table;
  return cut_stages(config, bytes, n);
}

RankPlanner::Share RankPlanner::share(Shard shard, Stage stage, Shard::Range layers, int rows) const {
  const ModelCuts cuts(model_.config, shard);
  ModelConfig config = part_of(cuts.rank_config(), layers);
  config.vocab_size = cuts.vocabulary().count;
  // Of the embedding and the output matrix, which every part counts as its own.
  const double table = static_cast<double>(config.model_dim) * config.vocab_size;
  const bool embedding = stage.first(), output = stage.last();
  const double not_here = config.tied_embeddings ? (embedding || output ? 0 : table)
                                                 : (embedding ? 0 : table) + (output ? 0 : table);
  const double not_read = output ? 0 : table;
  Share share;
  share.weight_bytes = (static_cast<double>(config.n_parameters()) - not_here) * model_.bytes_per_weight;
  const CacheSpec cache = config.cache_spec(model_.kv_dtype, model_.block_size);
  for (const KvLayerSpec& layer : cache.layers)
    share.kv_token_bytes += static_cast<double>(CacheSpec::token_bytes(layer, cache.dtype));
  share.sequence_bytes = static_cast<double>(sequence_bytes(cache, model_.tokens));
  share.read_bytes =
      (active_parameters(config, rows) - not_read) * model_.bytes_per_weight + share.sequence_bytes * rows;
  share.operations = 2.0 * (static_cast<double>(config.n_active_parameters()) - not_read) * rows;
  return share;
}

// Of a step: what was measured of one rank counts before what follows from the machine's numbers.
double RankPlanner::seconds(const Share& share, int rows) const {
  const auto& known = machines_.step_seconds;
  if (known.empty()) {
    const double operations = machines_.rank_operations_per_second;
    return std::max(share.read_bytes / machines_.rank_bytes_per_second,
                    operations > 0 ? share.operations / operations : 0);
  }
  double whole = known.front().second;
  if (known.size() > 1) {  // on the line through the two that are around, or nearest
    size_t next = 1;
    while (next + 1 < known.size() && known[next].first < rows) ++next;
    const auto [r0, t0] = known[next - 1];
    const auto [r1, t1] = known[next];
    whole = t0 + (t1 - t0) * (rows - r0) / (r1 - r0);
  }
  const Share all = this->share({}, {}, {0, model_.config.n_layers}, rows);
  return whole * share.read_bytes / all.read_bytes;
}

double RankPlanner::sum_seconds(double bytes, int n_ranks, int n_hosts) const {
  if (n_ranks == 1) return 0;
  const double per_host = n_ranks / n_hosts;
  double latency = kHostLatency, bytes_per_second = kHostBytesPerSecond, others = n_ranks - 1;
  if (n_hosts > 1) {
    latency += machines_.link_seconds * std::bit_width(static_cast<unsigned>(n_hosts - 1));
    bytes_per_second = machines_.link_bytes_per_second / per_host;
    others = n_ranks - per_host;
  }
  const double all = latency + others * bytes / bytes_per_second,
               by_parts = 2 * latency + 2 * others / n_ranks * bytes / bytes_per_second;
  if (n_hosts > 1) return n_ranks * bytes <= kSmallSum ? all : by_parts;
  return std::min(all, by_parts);
}

double RankPlanner::message_seconds(double bytes, bool between_hosts, int n_senders) const {
  if (!between_hosts) return kHostLatency + bytes / kHostBytesPerSecond;
  return kHostLatency + machines_.link_seconds + n_senders * bytes / machines_.link_bytes_per_second;
}

int RankPlanner::per_host(const Combination& combination) const {
  return static_cast<int>(std::max<int64_t>(1, combination.ranks() / machines_.hosts));
}

RankPlanner::StageCosts RankPlanner::stage_costs(const Combination& combination, Stage stage,
                                                 Shard::Range layers, int rows) const {
  StageCosts costs;
  const int n_hosts = std::max(1, combination.tensor / per_host(combination));
  for (int rank = 0; rank < combination.tensor; ++rank) {
    const Share own = share({rank, combination.tensor}, stage, layers, rows);
    costs.most.weight_bytes = std::max(costs.most.weight_bytes, own.weight_bytes);
    costs.most.kv_token_bytes = std::max(costs.most.kv_token_bytes, own.kv_token_bytes);
    costs.most.sequence_bytes = std::max(costs.most.sequence_bytes, own.sequence_bytes);
    costs.compute_seconds = std::max(costs.compute_seconds, seconds(own, rows));
  }
  const ModelCuts cuts(model_.config, {0, combination.tensor});
  const bool cuts_tokens = cuts.vocabulary().count < model_.config.vocab_size;
  costs.sums = sums_of(cuts, model_.config, layers) + (stage.first() && cuts_tokens ? 1 : 0);
  costs.sum_seconds =
      costs.sums * sum_seconds(4.0 * model_.config.model_dim * rows, combination.tensor, n_hosts);
  if (stage.last() && cuts_tokens) {  // and the logits
    const double bytes = 4.0 * model_.config.vocab_size / combination.tensor * rows;
    costs.sum_seconds += sum_seconds(bytes, combination.tensor, n_hosts);
  }
  return costs;
}

// The batch from rank 0 to all, then the stream from stage to stage.
void RankPlanner::add_messages(const Combination& combination, const std::vector<Shard::Range>& layers,
                               int rows, RankCosts& costs, double& path_seconds) const {
  const int here = per_host(combination);
  if (combination.of_engine() == 1) return;
  const auto n_hosts = static_cast<unsigned>(std::max<int64_t>(1, combination.of_engine() / here));
  costs.messages += 1;
  path_seconds += kHostLatency + machines_.link_seconds * (n_hosts > 1 ? std::bit_width(n_hosts - 1) : 0);
  const int n_stages = combination.stages;
  // Rank 0 is of the last stage (engine/ranks/rank_grid.h).
  const auto host_of = [&](int stage) { return (stage + 1) % n_stages * combination.tensor / here; };
  for (int stage = 0; stage + 1 < n_stages; ++stage) {
    const int first = layers[static_cast<size_t>(stage) + 1].first;
    const double bytes = 4.0 * model_.config.stage_dim(first) * rows;
    const bool between = combination.tensor >= here ? n_hosts > 1 : host_of(stage) != host_of(stage + 1);
    path_seconds += message_seconds(bytes, between, std::min(combination.tensor, here));
    costs.messages += 1;
  }
}

Result<RankCosts> RankPlanner::estimate(const Combination& combination) const {
  const int here = per_host(combination);
  const auto even = [&](int64_t n) { return n % here == 0 || here % n == 0; };
  if (combination.ranks() > 1 && (combination.ranks() % machines_.hosts != 0 || !even(combination.tensor) ||
                                  !even(combination.of_engine()))) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--hosts {}: expected equally many of the {} ranks on each, and those of a stage and of an "
                  "engine on as few as can be, got {}",
                  machines_.hosts, combination.ranks(), combination.text());
  }
  ASSIGN_OR_RETURN(const auto layers, stages(combination.stages));
  const int sequences = (batch_ + combination.engines - 1) / combination.engines;
  const int steps = std::min(combination.stages, sequences), rows = (sequences + steps - 1) / steps;
  RankCosts costs;
  costs.combination = combination;
  double path = 0, busiest = 0, compute = 0;
  for (int i = 0; i < combination.stages; ++i) {
    const Stage stage{i, combination.stages};
    const Shard::Range part = layers[static_cast<size_t>(i)];
    const StageCosts own = stage_costs(combination, stage, part, rows);
    costs.weight_bytes = std::max(costs.weight_bytes, own.most.weight_bytes);
    costs.kv_token_bytes = std::max(costs.kv_token_bytes, own.most.kv_token_bytes);
    costs.cache_bytes = std::max(costs.cache_bytes, own.most.sequence_bytes * sequences);
    costs.sums += own.sums;
    const bool cut = combination.tensor > 1;
    costs.messages += own.sums + (cut && stage.last() ? 1 : 0);
    double wire = cut ? own.sums * 4.0 * model_.config.model_dim : 0;
    if (cut && stage.last()) wire += 4.0 * model_.config.vocab_size / combination.tensor;
    if (!stage.last()) wire += 4.0 * model_.config.stage_dim(part.first + part.count);
    costs.wire_bytes = std::max(costs.wire_bytes, wire);
    path += own.compute_seconds + own.sum_seconds;
    busiest = std::max(busiest, own.compute_seconds + own.sum_seconds);
    compute = std::max(compute, own.compute_seconds);
  }
  add_messages(combination, layers, rows, costs, path);
  costs.compute_seconds = steps * compute;
  costs.step_seconds = std::max(steps * busiest, path);
  return costs;
}

}  // namespace penstock
