#include "cli/planning/rank_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "model/blocks/cuts.h"
#include "model/load/stages.h"

namespace penstock {
namespace {

// Latency and bandwidth between ranks of one host, measured by bench/communicator_bench.cc with two
// ranks on an AMD EPYC of 2024.
constexpr double kHostLatency = 1e-6, kHostBytesPerSecond = 8e9;
// bytes of all ranks together up to which hosts sum all to all
constexpr double kSmallSum = 256 << 10;
// maximum bytes of one operation of a sum, and of a message sent eagerly (without rendezvous)
constexpr double kAtOnce = (1 << 20) - 4096;

// Returns the number of sums per token in these layers: one per sub-layer that is cut among ranks.
int sums_of(const ModelCuts& cuts, const ModelConfig& whole, Shard::Range layers) {
  int n = 0;
  for (int i = layers.first; i < layers.first + layers.count; ++i) {
    const LayerConfig& layer = whole.layers[static_cast<size_t>(i)];
    if (layer.attention && cuts.heads(i).count < whole.n_heads_of(i)) ++n;
    const bool cut = layer.moe ? cuts.expert_ffn().count < whole.experts.ffn_dim
                               : cuts.ffn(i).count < whole.ffn_dim_of(i);
    if (cut) ++n;
  }
  return n;
}

// Returns the configuration of a model that has only these layers.
ModelConfig part_of(ModelConfig config, Shard::Range layers) {
  const auto first = config.layers.begin() + layers.first;
  config.layers = std::vector<LayerConfig>(first, first + layers.count);
  config.n_layers = layers.count;
  for (LayerConfig& layer : config.layers) {
    for (int* from :
         {&layer.kv_layer, &layer.selecting_layer, &layer.joining_layer, &layer.weights_layer})
      if (*from >= 0) *from = std::max(0, *from - layers.first);
  }
  return config;
}

// Returns the expected number of parameters that a step of `rows` rows reads. A mixture of experts
// reads every expert that some row chooses; the choices are taken as independent and uniform.
double active_parameters(ModelConfig config, int rows) {
  const auto of_one = static_cast<double>(config.n_active_parameters());
  if (config.experts.count == 0 || config.experts.routing.n_active >= config.experts.count)
    return of_one;
  const double experts = config.experts.count, taken = config.experts.routing.n_active,
               met = experts * (1 - std::pow(1 - taken / experts, rows));
  ++config.experts.routing.n_active;
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
    if (layer.window > 0 && layer.group > 0)
      kept = std::min<int64_t>(tokens, layer.window + spec.block_size);
    const int64_t blocks = (kept + spec.block_size - 1) / spec.block_size;
    total += blocks * spec.block_size * CacheSpec::token_bytes(layer, spec.dtype);
  }
  return total;
}

// The memory and the work of one rank.
struct RankPlanner::Share {
  double weight_bytes = 0, kv_token_bytes = 0, sequence_bytes = 0;
  double read_bytes = 0, operations = 0;  // of one step
  double work(const StepRows& rows) const {
    return rows.tokens > rows.outputs ? operations : read_bytes;
  }
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
                           (config.embedding.tied ? table : 2 * table));
  bytes.output = table;
  return cut_stages(config, bytes, n);
}

RankPlanner::Share RankPlanner::share(Shard shard, Stage stage, Shard::Range layers,
                                      const StepRows& rows) const {
  const ModelCuts cuts(model_.config, shard);
  ModelConfig config = part_of(cuts.rank_config(), layers);
  config.vocab_size = cuts.vocabulary().count;
  // Parameters of the embedding and of the output matrix. part_of() counts both in every stage.
  const double table = static_cast<double>(config.model_dim) * config.vocab_size;
  const bool embedding = stage.first(), output = stage.last();
  const double not_here = config.embedding.tied ? (embedding || output ? 0 : table)
                                                : (embedding ? 0 : table) + (output ? 0 : table);
  const double not_read = output ? 0 : table;
  Share share;
  share.weight_bytes =
      (static_cast<double>(config.n_parameters()) - not_here) * model_.bytes_per_weight;
  const CacheSpec cache = config.cache_spec(model_.cache, model_.block_size);
  for (const KvLayerSpec& layer : cache.layers)
    share.kv_token_bytes += static_cast<double>(CacheSpec::token_bytes(layer, cache.dtype));
  share.sequence_bytes = static_cast<double>(sequence_bytes(cache, model_.tokens));
  share.read_bytes = (active_parameters(config, rows.tokens) - not_read) * model_.bytes_per_weight +
                     share.sequence_bytes * std::max(1, rows.outputs);
  share.operations =
      2.0 * ((static_cast<double>(config.n_active_parameters()) - table) * rows.tokens +
             (output ? table * rows.outputs : 0));
  return share;
}

// Returns the step time of one rank with the whole model, by linear interpolation between the
// measured numbers of rows, or extrapolation from the two nearest ones.
double RankPlanner::measured_seconds(int rows) const {
  const auto& known = machines_.step_seconds;
  if (known.size() == 1) return known.front().second;
  size_t next = 1;
  while (next + 1 < known.size() && known[next].first < rows) ++next;
  const auto [r0, t0] = known[next - 1];
  const auto [r1, t1] = known[next];
  return t0 + (t1 - t0) * (rows - r0) / (r1 - r0);
}

// Returns the time of a step: measured times of one rank, scaled by the share of the work, else the
// time that follows from the machine's rates.
double RankPlanner::seconds(const Share& share, const StepRows& rows) const {
  if (machines_.step_seconds.empty()) {
    const double operations = machines_.rank_operations_per_second;
    return std::max(share.read_bytes / machines_.rank_bytes_per_second,
                    operations > 0 ? share.operations / operations : 0);
  }
  // Prompts were measured with the logits of their last token only.
  const StepRows of_whole{rows.tokens, rows.tokens > rows.outputs ? 1 : rows.outputs};
  const Share all = this->share({}, {}, {0, model_.config.n_layers}, of_whole);
  return measured_seconds(rows.tokens) * share.work(rows) / all.work(of_whole);
}

// Returns how many times longer a later part of a prompt takes than a first part of the same
// length, since its tokens attend to the `before` earlier ones too.
double RankPlanner::part_factor(int tokens, int before) const {
  if (machines_.step_seconds.empty() || before == 0) return 1;
  const double more = measured_seconds(before + tokens) - measured_seconds(before);
  return std::max(1.0, more / measured_seconds(tokens));
}

double RankPlanner::sum_seconds(double bytes, int n_ranks, int n_hosts) const {
  if (n_ranks == 1) return 0;
  if (n_hosts > 1 && n_ranks * bytes <= kSmallSum) return gather_seconds(bytes, n_ranks, n_hosts);
  const double by_parts = 2 * gather_seconds(bytes / n_ranks, n_ranks, n_hosts);
  return n_hosts > 1 ? by_parts : std::min(gather_seconds(bytes, n_ranks, n_hosts), by_parts);
}

// Returns the time of an all-gather of `bytes` per rank.
double RankPlanner::gather_seconds(double bytes, int n_ranks, int n_hosts) const {
  if (n_ranks == 1) return 0;
  if (n_hosts == 1) return kHostLatency + (n_ranks - 1) * bytes / kHostBytesPerSecond;
  const double here = n_ranks / n_hosts;
  const int rounds = std::bit_width(static_cast<unsigned>(n_hosts - 1));
  return kHostLatency +
         machines_.link_seconds * rounds * std::max(1.0, std::ceil(bytes / kAtOnce)) +
         (n_ranks - here) * bytes * here / machines_.link_bytes_per_second;
}

// Returns the time to gather the logits of n_rows rows, or only the candidates.
double RankPlanner::logit_seconds(int n_rows, int n_ranks, int n_hosts) const {
  if (n_rows == 0) return 0;
  const double of_row =
      load_.candidates > 0 ? 8.0 * load_.candidates : 4.0 * model_.config.vocab_size / n_ranks;
  return gather_seconds(of_row * n_rows, n_ranks, n_hosts);
}

int RankPlanner::per_host(const Combination& combination) const {
  return static_cast<int>(std::max<int64_t>(1, combination.ranks() / machines_.hosts));
}

RankPlanner::StageCosts RankPlanner::stage_costs(const Combination& combination, Stage stage,
                                                 Shard::Range layers, const StepRows& rows) const {
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
  costs.sum_seconds = costs.sums * sum_seconds(4.0 * model_.config.model_dim * rows.tokens,
                                               combination.tensor, n_hosts);
  if (stage.last() && cuts_tokens)
    costs.sum_seconds += logit_seconds(rows.outputs, combination.tensor, n_hosts);
  return costs;
}

// Returns the time to broadcast a batch from rank 0.
double RankPlanner::command_seconds(const Combination& combination) const {
  const auto n_hosts =
      static_cast<unsigned>(std::max<int64_t>(1, combination.of_engine() / per_host(combination)));
  if (combination.of_engine() == 1) return 0;
  return kHostLatency + machines_.link_seconds * (n_hosts > 1 ? std::bit_width(n_hosts - 1) : 0);
}

// Returns the costs of the activations sent to `stage` by the previous one.
RankPlanner::Stream RankPlanner::stream_to(const Combination& combination,
                                           const std::vector<Shard::Range>& layers, int stage,
                                           int rows) const {
  const int here = per_host(combination), n_stages = combination.stages;
  const double bytes =
      4.0 * model_.config.stage_dim(layers[static_cast<size_t>(stage)].first) * rows;
  // Rank 0 belongs to the last stage (engine/ranks/rank_grid.h).
  const auto host_of = [&](int s) { return (s + 1) % n_stages * combination.tensor / here; };
  const bool between = combination.tensor >= here ? combination.of_engine() > here
                                                  : host_of(stage - 1) != host_of(stage);
  if (!between) return {kHostLatency + bytes / kHostBytesPerSecond, false};
  const double wire = std::min(combination.tensor, here) * bytes / machines_.link_bytes_per_second;
  const bool asked = bytes > kAtOnce;
  return {kHostLatency + machines_.link_seconds * (asked ? 3 : 1) + wire, asked};
}

// Simulates the prompt's parts, which follow one another through the stages.
double RankPlanner::prompt_seconds(const Combination& combination,
                                   const std::vector<Shard::Range>& layers) const {
  constexpr int kLeast = 64;  // as in StepLoop::share_of_stage()
  const int n_stages = combination.stages;
  const double command = command_seconds(combination);
  const auto under_way = static_cast<size_t>(n_stages > 1 ? n_stages + 1 : 1);
  // by (tokens of the part, whether it is the last part)
  std::map<std::pair<int, bool>, std::vector<StageCosts>> costs_of;
  std::vector<double> free(static_cast<size_t>(n_stages)), done;
  for (int left = load_.prompt_tokens; left > 0;) {
    int part = std::min(left, load_.most_tokens);
    if (n_stages > 1) part = std::min(part, std::max(kLeast, left / (2 * n_stages)));
    left -= part;
    std::vector<StageCosts>& costs = costs_of[{part, left == 0}];
    for (int i = static_cast<int>(costs.size()); i < n_stages; ++i) {
      const StepRows rows{part, left == 0 ? 1 : 0};
      costs.push_back(
          stage_costs(combination, {i, n_stages}, layers[static_cast<size_t>(i)], rows));
    }
    const double factor = part_factor(part, load_.prompt_tokens - left - part);
    double at = (done.size() < under_way ? 0 : done[done.size() - under_way]) + command;
    for (int i = 0; i < n_stages; ++i) {
      const Stream stream = i > 0 ? stream_to(combination, layers, i, part) : Stream{};
      double& until = free[static_cast<size_t>(i)];
      // A rendezvous message is received only after the stage has computed the previous part.
      at = stream.asked ? std::max(at, until) + stream.seconds
                        : std::max(at + stream.seconds, until);
      const StageCosts& own = costs[static_cast<size_t>(i)];
      at += factor * own.compute_seconds + own.sum_seconds;
      until = at;
    }
    done.push_back(at);
  }
  return done.empty() ? 0 : done.back();
}

Result<RankCosts> RankPlanner::estimate(const Combination& combination) const {
  const int here = per_host(combination);
  const auto even = [&](int64_t n) { return n % here == 0 || here % n == 0; };
  if (combination.ranks() > 1 && (combination.ranks() % machines_.hosts != 0 ||
                                  !even(combination.tensor) || !even(combination.of_engine()))) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "--hosts {}: expected equally many of the {} ranks on each, and those of a stage and of an "
        "engine on as few as can be, got {}",
        machines_.hosts, combination.ranks(), combination.text());
  }
  ASSIGN_OR_RETURN(const auto layers, stages(combination.stages));
  const int sequences = (load_.batch + combination.engines - 1) / combination.engines;
  const int steps = std::min(combination.stages, sequences), rows = (sequences + steps - 1) / steps;
  RankCosts costs;
  costs.combination = combination;
  costs.messages = combination.of_engine() > 1 ? combination.stages : 0;
  double path = command_seconds(combination), busiest = 0, compute = 0;
  for (int i = 0; i < combination.stages; ++i) {
    const Stage stage{i, combination.stages};
    const Shard::Range part = layers[static_cast<size_t>(i)];
    const StageCosts own = stage_costs(combination, stage, part, {rows, rows});
    costs.weight_bytes = std::max(costs.weight_bytes, own.most.weight_bytes);
    costs.kv_token_bytes = std::max(costs.kv_token_bytes, own.most.kv_token_bytes);
    costs.cache_bytes = std::max(costs.cache_bytes, own.most.sequence_bytes * sequences);
    costs.sums += own.sums;
    const bool cut = combination.tensor > 1;
    costs.messages += own.sums + (cut && stage.last() ? 1 : 0);
    double wire = cut ? own.sums * 4.0 * model_.config.model_dim : 0;
    if (cut && stage.last()) {
      wire += load_.candidates > 0 ? 8.0 * load_.candidates
                                   : 4.0 * model_.config.vocab_size / combination.tensor;
    }
    if (!stage.last()) wire += 4.0 * model_.config.stage_dim(part.first + part.count);
    costs.wire_bytes = std::max(costs.wire_bytes, wire);
    const double busy = own.compute_seconds + own.sum_seconds;
    path += busy;
    const Stream stream = stage.first() ? Stream{} : stream_to(combination, layers, i, rows);
    path += stream.seconds;
    busiest = std::max(busiest, busy + (stream.asked ? stream.seconds : 0));
    compute = std::max(compute, own.compute_seconds);
  }
  costs.compute_seconds = steps * compute;
  costs.step_seconds = std::max(steps * busiest, path);
  costs.prompt_seconds = prompt_seconds(combination, layers);
  return costs;
}

}  // namespace penstock
