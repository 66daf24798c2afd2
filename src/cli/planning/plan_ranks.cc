#include "cli/planning/plan_ranks.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/console/terminal.h"
#include "ops/ops.h"

namespace penstock {
namespace {

constexpr int kMostRanks = 1024;

Result<double> positive_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      !std::isfinite(value))
    return errorf(ErrorCode::kInvalidArgument, "--step-ms: expected a number above 0, got {}",
                  text);
  return value;
}

// Parses "27", or "1=27" and "8=40", to (rows, seconds) in ascending order of rows.
Result<std::vector<std::pair<int, double>>> parse_step_times(
    const std::vector<std::string>& texts) {
  std::vector<std::pair<int, double>> times;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    double rows = 1;
    if (at != std::string::npos) {
      ASSIGN_OR_RETURN(rows, positive_number(std::string_view(text).substr(0, at)));
    } else if (texts.size() > 1) {
      return errorf(ErrorCode::kInvalidArgument,
                    "--step-ms: expected ROWS=MS for each of several, got {}", text);
    }
    ASSIGN_OR_RETURN(
        const double ms,
        positive_number(std::string_view(text).substr(at == std::string::npos ? 0 : at + 1)));
    if (rows > 65536 || rows != std::floor(rows) ||
        (!times.empty() && times.back().first >= static_cast<int>(rows))) {
      return errorf(ErrorCode::kInvalidArgument,
                    "--step-ms: expected rows from 1 to 65536 that ascend, got {}", text);
    }
    times.emplace_back(static_cast<int>(rows), ms * 1e-3);
  }
  return times;
}

Status check_size(const char* flag, int n) {
  if (n >= 1 && n <= kMostRanks) return {};
  return errorf(ErrorCode::kInvalidArgument, "{}: expected 1 to {}, got {}", flag, kMostRanks, n);
}

}  // namespace

struct RanksPlan::Row {
  RankCosts costs;
  double tokens_per_second = 0, speedup = 0;
  double host_bytes = 0;  // bytes of weights and cache per host
  bool fits = true;
};

RanksPlan::RanksPlan(CLI::App& app) {
  const char* group = "Several ranks";
  const auto list = [&](const char* name, std::vector<int>& sizes, const char* help) {
    return app.add_option(name, sizes, help)->delimiter(',')->group(group);
  };
  CLI::Option* const lists[] = {
      list("--tensor-parallel-size", tensor,
           "estimate tensor parallelism with this many ranks: memory per rank, messages, step "
           "time and speed-up; several, separated by commas, for a table"),
      list("--pipeline-parallel-size", pipeline,
           "estimate pipeline parallelism with this many stages; several likewise"),
      list("--data-parallel-size", data,
           "estimate data parallelism with this many engines; several likewise")};
  CLI::Option* all =
      app.add_option("--ranks", n_ranks,
                     "list all ways to use this many ranks, the fastest first, without those that "
                     "need more than --memory of a host")
          ->check(CLI::Range(1, kMostRanks))
          ->group(group);
  for (CLI::Option* one : lists) all->excludes(one);
  app.add_option("--hosts", hosts, "number of hosts, with equally many ranks on each")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str()
      ->group(group);
  app.add_option("--link-gbps", link_gbps, "network bandwidth of a host, gigabits per second")
      ->group(group);
  app.add_option("--link-us", link_us, "latency between hosts, microseconds")->group(group);
  app.add_option(
         "--memory-gbps", memory_gbps,
         "memory bandwidth of a rank, gigabytes per second (default: measured on this machine, "
         "divided by the ranks of a host)")
      ->group(group);
  app.add_option("--rank-tflops", tflops,
                 "compute rate of a rank, 10^12 operations per second (default: limited by "
                 "--memory-gbps only)")
      ->group(group);
  app.add_option("--step-ms", step_ms,
                 "measured decode step of one rank with the whole model, milliseconds, instead of "
                 "--memory-gbps; for several numbers of sequences: 1=27,4=35")
      ->delimiter(',')
      ->group(group);
  app.add_option("--batch", batch, "sequences decoded together in all engines")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->group(group);
  app.add_option("--candidates", candidates,
                 "logits that sampling needs from each rank: 1 if greedy, else top-k; 0 is all")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--prompt-tokens", prompt_tokens,
         "estimate also the prefill time of a single prompt of this many tokens; needs "
         "--step-ms with as many rows (64=90,512=600), or --rank-tflops beside --memory-gbps")
      ->check(CLI::Range(0, 32768))
      ->group(group);
  app.add_option("--max-num-batched-tokens", most_tokens,
                 "largest number of prompt tokens in a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(group);
}

Status RanksPlan::check() const {
  for (const int n : tensor) RETURN_IF_ERROR(check_size("--tensor-parallel-size", n));
  for (const int n : pipeline) RETURN_IF_ERROR(check_size("--pipeline-parallel-size", n));
  for (const int n : data) RETURN_IF_ERROR(check_size("--data-parallel-size", n));
  for (const Combination& one : combinations()) {
    if (one.ranks() > kMostRanks) {
      return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} ranks, got {}",
                    "--tensor-parallel-size x --pipeline-parallel-size x --data-parallel-size",
                    kMostRanks, one.ranks());
    }
  }
  if (n_ranks > 1 && n_ranks % hosts != 0) {
    return errorf(ErrorCode::kInvalidArgument, "--ranks {}: expected a multiple of --hosts {}",
                  n_ranks, hosts);
  }
  // The negated comparison rejects NaN too.
  if (hosts > 1 && !(link_gbps > 0 && link_us > 0)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--hosts {}: expected --link-gbps and --link-us, both above 0, got {} and {}",
                  hosts, link_gbps, link_us);
  }
  if (!(memory_gbps >= 0 && tflops >= 0)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--memory-gbps and --rank-tflops: expected numbers >= 0, got {} and {}",
                  memory_gbps, tflops);
  }
  return {};
}

// Returns the properties of the machines by the flags. Measures the memory bandwidth of this
// machine if neither it nor step times are given.
Result<Machines> RanksPlan::machines() const {
  Machines machines;
  machines.hosts = hosts;
  machines.link_bytes_per_second = link_gbps * 1e9 / 8;
  machines.link_seconds = link_us * 1e-6;
  machines.rank_operations_per_second = tflops * 1e12;
  machines.rank_bytes_per_second = memory_gbps * 1e9;
  ASSIGN_OR_RETURN(machines.step_seconds, parse_step_times(step_ms));
  if (memory_gbps > 0 || !step_ms.empty()) return machines;
  constexpr int64_t kProbe = int64_t{256} << 20;
  ASSIGN_OR_RETURN(const auto ops, make_ops("cpu", OpsConfig{}));
  for (int sample = 0; sample < 5; ++sample) {
    machines.rank_bytes_per_second =
        std::max(machines.rank_bytes_per_second, ops->limits(kProbe).read_bytes_per_second);
  }
  return machines;
}

std::vector<Combination> RanksPlan::combinations() const {
  std::vector<Combination> all;
  if (n_ranks > 0) {
    for (int t = 1; t <= n_ranks; ++t) {
      for (int p = 1; n_ranks % t == 0 && p <= n_ranks / t; ++p)
        if (n_ranks / t % p == 0) all.push_back({t, p, n_ranks / t / p});
    }
    return all;
  }
  const auto of = [](const std::vector<int>& sizes) {
    return sizes.empty() ? std::vector{1} : sizes;
  };
  for (const int d : of(data))
    for (const int p : of(pipeline))
      for (const int t : of(tensor)) all.push_back({t, p, d});
  return all;
}

Result<std::vector<RanksPlan::Row>> RanksPlan::rows(const PlannedModel& model,
                                                    int64_t host_memory) const {
  ASSIGN_OR_RETURN(const Machines given, machines());
  std::vector<Row> rows;
  Error last{ErrorCode::kInvalidArgument, "no combination"};
  double least_bytes = 0;
  for (const Combination& one : combinations()) {
    Machines machines = given;
    const auto per_host = static_cast<double>(std::max<int64_t>(1, one.ranks() / hosts));
    if (memory_gbps == 0) machines.rank_bytes_per_second /= per_host;
    const RankPlanner planner(model, machines, {batch, candidates, prompt_tokens, most_tokens});
    const auto costs = planner.estimate(one);
    if (!costs) {
      if (n_ranks == 0) return tl::unexpected(costs.error());
      last = costs.error();
      continue;
    }
    Row row{*costs, batch / costs->step_seconds, 0,
            per_host * (costs->weight_bytes + costs->cache_bytes)};
    row.fits = host_memory == 0 || row.host_bytes <= static_cast<double>(host_memory);
    if (n_ranks > 0 && !row.fits) {
      if (least_bytes == 0 || row.host_bytes < least_bytes) least_bytes = row.host_bytes;
      continue;
    }
    ASSIGN_OR_RETURN(const RankCosts whole, planner.estimate({}));
    row.speedup = whole.step_seconds / costs->step_seconds;
    rows.push_back(row);
  }
  if (rows.empty() && least_bytes > 0) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "--ranks {} on --hosts {}: every way needs at least {} of a host, got --memory {}", n_ranks,
        hosts, format_bytes(least_bytes), format_bytes(static_cast<double>(host_memory)));
  }
  if (rows.empty()) return tl::unexpected(last);
  if (n_ranks > 0) {
    std::ranges::stable_sort(rows, std::greater(),
                             [](const Row& row) { return row.tokens_per_second; });
  }
  return rows;
}

Status RanksPlan::run(const PlannedModel& model, int64_t host_memory, bool json) const {
  RETURN_IF_ERROR(check());
  ASSIGN_OR_RETURN(const std::vector<Row> all, rows(model, host_memory));
  json ? print_json(model, all) : print(model, all);
  return {};
}

void RanksPlan::print_json(const PlannedModel& model, const std::vector<Row>& rows) const {
  nlohmann::json object = {{"model", model.name},
                           {"hosts", hosts},
                           {"batch", batch},
                           {"tokens", model.tokens},
                           {"ranks", nlohmann::json::array()}};
  for (const Row& row : rows) {
    const RankCosts& costs = row.costs;
    object["ranks"].push_back(
        {{"tensor_parallel_size", costs.combination.tensor},
         {"pipeline_parallel_size", costs.combination.stages},
         {"data_parallel_size", costs.combination.engines},
         {"weight_bytes_per_rank", costs.weight_bytes},
         {"kv_bytes_per_token_per_rank", costs.kv_token_bytes},
         {"cache_bytes_per_rank", costs.cache_bytes},
         {"host_bytes", row.host_bytes},
         {"fits", row.fits},
         {"sums_per_step", costs.sums},
         {"messages_per_step", costs.messages},
         {"bytes_per_token", costs.wire_bytes},
         {"compute_ms", costs.compute_seconds * 1e3},
         {"communication_ms", (costs.step_seconds - costs.compute_seconds) * 1e3},
         {"step_ms", costs.step_seconds * 1e3},
         {"tokens_per_second", row.tokens_per_second},
         {"speedup", row.speedup}});
    if (prompt_tokens > 0) object["ranks"].back()["prompt_ms"] = costs.prompt_seconds * 1e3;
  }
  fmt::print("{}\n", object.dump());
}

void RanksPlan::print(const PlannedModel& model, const std::vector<Row>& rows) const {
  fmt::print("{}, {} sequence{} of {} tokens on {} host{}\n", model.name, batch,
             batch == 1 ? "" : "s", model.tokens, hosts, hosts == 1 ? "" : "s");
  fmt::print(
      "{:>6}  {:>8}  {:>4}  {:>12}  {:>10}  {:>10}  {:>8}  {:>11}  {:>10}  {:>10}  {:>9}  "
      "{:>8}{}\n",
      "tensor", "pipeline", "data", "weights/rank", "cache/rank", "KV/token", "messages",
      "bytes/token", "compute ms", "waiting ms", "tokens/s", "speed-up",
      prompt_tokens > 0 ? "  prompt ms" : "");
  for (const Row& row : rows) {
    const RankCosts& costs = row.costs;
    fmt::print(
        "{:>6}  {:>8}  {:>4}  {:>12}  {:>10}  {:>10}  {:>8}  {:>11}  {:>10.3f}  {:>10.3f}  "
        "{:>9.1f}  {:>7.2f}x{}{}\n",
        costs.combination.tensor, costs.combination.stages, costs.combination.engines,
        format_bytes(costs.weight_bytes), format_bytes(costs.cache_bytes),
        format_bytes(costs.kv_token_bytes), costs.messages, format_bytes(costs.wire_bytes),
        costs.compute_seconds * 1e3, (costs.step_seconds - costs.compute_seconds) * 1e3,
        row.tokens_per_second, row.speedup,
        prompt_tokens > 0 ? fmt::format("  {:>9.1f}", costs.prompt_seconds * 1e3) : "",
        row.fits ? "" : fmt::format("  needs {} of a host", format_bytes(row.host_bytes)));
  }
}

}  // namespace penstock
