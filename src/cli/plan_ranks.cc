#include "cli/plan_ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "model/cuts.h"
#include "ops/ops.h"

namespace penstock {
namespace {

constexpr int kMostRanks = 1024;
// Between ranks of one host: bench/communicator_bench.cc, two ranks on an EPYC of 2024.
constexpr double kHostLatency = 1e-6, kHostBytesPerSecond = 8e9;

int64_t kv_token_bytes(const ModelConfig& config, KvDType dtype, int block_size) {
  int64_t bytes = 0;
  const CacheSpec spec = config.cache_spec(dtype, block_size);
  for (const KvLayerSpec& layer : spec.layers) bytes += CacheSpec::token_bytes(layer, spec.dtype);
  return bytes;
}

// Of a token: one for each sub-layer that is cut.
int sums_per_token(const ModelCuts& cuts, const ModelConfig& whole) {
  int n = cuts.vocabulary().count < whole.vocab_size ? 1 : 0;
  for (int i = 0; i < whole.n_layers; ++i) {
    const LayerConfig& layer = whole.layers[static_cast<size_t>(i)];
    if (layer.attention && cuts.heads().count < whole.n_heads) ++n;
    const bool cut =
        layer.moe ? cuts.expert_ffn().count < whole.expert_ffn_dim : cuts.ffn(i).count < whole.ffn_dim_of(i);
    if (cut) ++n;
  }
  return n;
}

}  // namespace

struct RanksPlan::Row {
  int n_ranks, n_sums;
  double weight_bytes, cache_bytes;  // of the rank that has most
  double wire_bytes;                 // that a rank shows for a token
  double compute_seconds, rank_seconds;
  double step_seconds() const { return compute_seconds + rank_seconds; }
};

RanksPlan::RanksPlan(CLI::App& app) {
  const char* group = "Several ranks";
  app.add_option("--tensor-parallel-size", sizes,
                 "what so many ranks would bring: memory of each, messages, step time and speed-up; several, "
                 "separated by commas, for a table")
      ->delimiter(',')
      ->group(group);
  app.add_option("--hosts", hosts, "hosts that they are on, equally many on each")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str()
      ->group(group);
  app.add_option("--link-gbps", link_gbps, "a host's network, gigabits per second")->group(group);
  app.add_option("--link-us", link_us, "from one host to another, microseconds")->group(group);
  app.add_option(
         "--memory-gbps", memory_gbps,
         "what a rank reads of its memory, gigabytes per second (default: this machine's, measured, by the "
         "ranks of a host)")
      ->group(group);
  app.add_option("--step-ms", step_ms,
                 "a decode step of one rank with the whole model, milliseconds, if known better than by "
                 "--memory-gbps")
      ->group(group);
  app.add_option("--batch", batch, "sequences that are decoded together")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(group);
}

Status RanksPlan::check() const {
  for (const int n : sizes) {
    if (n < 1 || n > kMostRanks) {
      return errorf(ErrorCode::kInvalidArgument, "--tensor-parallel-size: expected 1 to {}, got {}",
                    kMostRanks, n);
    }
    if (n % hosts != 0 && n != 1) {
      return errorf(ErrorCode::kInvalidArgument,
                    "--tensor-parallel-size {}: expected a multiple of --hosts {}", n, hosts);
    }
  }
  if (hosts > 1 && (link_gbps <= 0 || link_us <= 0)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--hosts {}: expected --link-gbps and --link-us, both above 0, got {} and {}", hosts,
                  link_gbps, link_us);
  }
  if (memory_gbps < 0 || step_ms < 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--memory-gbps and --step-ms: expected numbers >= 0, got {} and {}", memory_gbps, step_ms);
  }
  return {};
}

Result<double> RanksPlan::memory_bytes_per_second(int ranks_per_host) const {
  if (memory_gbps > 0) return memory_gbps * 1e9;
  constexpr int64_t kProbe = int64_t{256} << 20;
  ASSIGN_OR_RETURN(const auto ops, make_ops("cpu", OpsConfig{}));
  double best = 0;
  for (int sample = 0; sample < 5; ++sample) best = std::max(best, ops->limits(kProbe).read_bytes_per_second);
  return best / ranks_per_host;
}

double RanksPlan::sum_seconds(double bytes, int n_ranks, int n_hosts) const {
  if (n_ranks == 1) return 0;
  const double per_host = n_ranks / n_hosts;
  double latency = kHostLatency, bytes_per_second = kHostBytesPerSecond, others = n_ranks - 1;
  if (n_hosts > 1) {
    latency += link_us * 1e-6 * std::bit_width(static_cast<unsigned>(n_hosts - 1));
    bytes_per_second = link_gbps * 1e9 / 8 / per_host;
    others = n_ranks - per_host;
  }
  const double all = latency + others * bytes / bytes_per_second,
               by_parts = 2 * latency + 2 * others / n_ranks * bytes / bytes_per_second;
  return std::min(all, by_parts);
}

RanksPlan::Row RanksPlan::estimate(const Model& model, int n_ranks, double bytes_per_second) const {
  Row row{};
  row.n_ranks = n_ranks;
  const ModelConfig& whole = model.config;
  double active_bytes = 0, cache_bytes = 0;  // of the slowest rank
  for (int rank = 0; rank < n_ranks; ++rank) {
    const ModelCuts cuts(whole, {rank, n_ranks});
    ModelConfig share = cuts.rank_config();
    share.vocab_size = cuts.vocabulary().count;
    const auto token_bytes = static_cast<double>(kv_token_bytes(share, model.kv_dtype, model.block_size));
    row.weight_bytes =
        std::max(row.weight_bytes, static_cast<double>(share.n_parameters()) * model.bytes_per_weight);
    row.cache_bytes = std::max(row.cache_bytes, token_bytes);
    active_bytes =
        std::max(active_bytes, static_cast<double>(share.n_active_parameters()) * model.bytes_per_weight);
    cache_bytes = std::max(cache_bytes, token_bytes * static_cast<double>(model.tokens) * batch);
    row.n_sums = sums_per_token(cuts, whole);
  }
  row.compute_seconds = (active_bytes + cache_bytes) / bytes_per_second;
  const int n_hosts = n_ranks == 1 ? 1 : hosts;
  const double sum_bytes = 4.0 * whole.model_dim * batch;
  const double logit_bytes = n_ranks == 1 ? 0 : 4.0 * whole.vocab_size / n_ranks * batch;
  row.rank_seconds =
      row.n_sums * sum_seconds(sum_bytes, n_ranks, n_hosts) + sum_seconds(logit_bytes, n_ranks, n_hosts);
  row.wire_bytes = (row.n_sums * sum_bytes + logit_bytes) / batch;
  return row;
}

Status RanksPlan::run(const Model& model, bool json) const {
  RETURN_IF_ERROR(check());
  std::vector<Row> rows;
  double one_seconds = 0;
  for (const int n : sizes) {
    const int per_host = std::max(1, n / hosts);
    double bytes_per_second = 0;
    if (step_ms == 0) {
      ASSIGN_OR_RETURN(bytes_per_second, memory_bytes_per_second(per_host));
    } else {
      bytes_per_second = estimate(model, 1, 1).compute_seconds / (step_ms * 1e-3);
    }
    one_seconds = estimate(model, 1, bytes_per_second).compute_seconds;
    rows.push_back(estimate(model, n, bytes_per_second));
  }
  if (json) {
    nlohmann::json object = {{"model", model.name},
                             {"hosts", hosts},
                             {"batch", batch},
                             {"tokens", model.tokens},
                             {"ranks", nlohmann::json::array()}};
    for (const Row& row : rows) {
      object["ranks"].push_back({{"tensor_parallel_size", row.n_ranks},
                                 {"weight_bytes_per_rank", row.weight_bytes},
                                 {"kv_bytes_per_token_per_rank", row.cache_bytes},
                                 {"sums_per_step", row.n_sums},
                                 {"bytes_per_token", row.n_ranks == 1 ? 0 : row.wire_bytes},
                                 {"compute_ms", row.compute_seconds * 1e3},
                                 {"communication_ms", row.rank_seconds * 1e3},
                                 {"tokens_per_second", batch / row.step_seconds()},
                                 {"speedup", one_seconds / row.step_seconds()}});
    }
    fmt::print("{}\n", object.dump());
    return {};
  }
  fmt::print("{}, {} sequence{} of {} tokens on {} host{}\n", model.name, batch, batch == 1 ? "" : "s",
             model.tokens, hosts, hosts == 1 ? "" : "s");
  fmt::print("{:>5}  {:>12}  {:>10}  {:>5}  {:>11}  {:>10}  {:>10}  {:>9}  {:>8}\n", "ranks", "weights/rank",
             "KV/token", "sums", "bytes/token", "compute ms", "between ms", "tokens/s", "speed-up");
  for (const Row& row : rows) {
    fmt::print("{:>5}  {:>12}  {:>10}  {:>5}  {:>11}  {:>10.3f}  {:>10.3f}  {:>9.1f}  {:>7.2f}x\n",
               row.n_ranks, format_bytes(row.weight_bytes), format_bytes(row.cache_bytes), row.n_sums,
               format_bytes(row.n_ranks == 1 ? 0 : row.wire_bytes), row.compute_seconds * 1e3,
               row.rank_seconds * 1e3, batch / row.step_seconds(), one_seconds / row.step_seconds());
  }
  return {};
}

}  // namespace penstock
