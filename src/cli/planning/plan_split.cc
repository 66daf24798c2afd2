#include "cli/planning/plan_split.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/console/terminal.h"
#include "cli/options/flags.h"
#include "engine/store/block_loader.h"

namespace penstock {
namespace {

Result<double> rate_of(const char* flag, const std::string& text) {
  int64_t rate = 0;
  if (const std::string wrong = parse_bytes(text, rate); !wrong.empty())
    return errorf(ErrorCode::kInvalidArgument, "{}: {}", flag, wrong);
  if (rate <= 0) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected bytes a second above 0, got {}", flag,
                  text);
  }
  return static_cast<double>(rate);
}

}  // namespace

SplitPlan::SplitPlan(CLI::App& app) {
  const char* const group = "Prefill and decode on different machines";
  app.add_option("--link-rate", link,
                 "bytes a second between them and the store, such as 1.1GiB: what handing over a "
                 "prompt of --tokens takes")
      ->group(group);
  app.add_option("--disk-rate", disk, "bytes a second of the store's disk, such as 2GiB")
      ->group(group);
  app.add_option("--prefill-rate", prefill_rate,
                 "prompt tokens a second of a prefill server, as penstock bench prints them")
      ->check(CLI::PositiveNumber)
      ->group(group);
}

Result<SplitPlan::Outcome> SplitPlan::plan(int64_t tokens, int64_t bytes) const {
  if (link.empty() && disk.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "--prefill-rate: expected --link-rate or --disk-rate beside it");
  Outcome result{.tokens = tokens, .bytes = bytes};
  const auto n_bytes = static_cast<double>(bytes), n_tokens = static_cast<double>(tokens);
  if (!link.empty()) {
    ASSIGN_OR_RETURN(const double rate, rate_of("--link-rate", link));
    result.link_seconds = n_bytes / rate;
  }
  if (!disk.empty()) {
    ASSIGN_OR_RETURN(const double rate, rate_of("--disk-rate", disk));
    result.disk_seconds = n_bytes / rate;
  }
  result.read_seconds = std::max(result.link_seconds, result.disk_seconds);
  if (result.read_seconds > 0)
    result.most_prefill_rate = kMostLoadShare * n_tokens / result.read_seconds;
  if (prefill_rate <= 0) return result;
  result.prefill_seconds = n_tokens / prefill_rate;
  result.later_seconds =
      result.read_seconds + std::max(0.0, result.read_seconds - result.prefill_seconds);
  result.pays = prefill_rate <= result.most_prefill_rate;
  return result;
}

void SplitPlan::print(const Outcome& result) const {
  fmt::print("handing over a prompt   {} for {} tokens:",
             format_bytes(static_cast<double>(result.bytes)), result.tokens);
  if (!link.empty()) fmt::print(" {:.3g} s over a link of {}/s", result.link_seconds, link);
  if (!disk.empty())
    fmt::print("{} {:.3g} s by a disk of {}/s", link.empty() ? "" : ",", result.disk_seconds, disk);
  fmt::print("\n");
  if (result.prefill_seconds > 0) {
    fmt::print(
        "prefill elsewhere       {}: computing takes {:.3g} s there, and the first token comes "
        "{:.3g} s later\n",
        result.pays ? "pays" : "does not pay", result.prefill_seconds, result.later_seconds);
  }
  if (result.most_prefill_rate > 0)
    fmt::print(
        "                        it pays up to {:.4g} prompt tokens a second; what computes faster "
        "computes its prompts itself\n",
        result.most_prefill_rate);
}

nlohmann::json SplitPlan::json(const Outcome& result) {
  return {{"tokens", result.tokens},
          {"bytes", result.bytes},
          {"link_seconds", result.link_seconds},
          {"disk_seconds", result.disk_seconds},
          {"read_seconds", result.read_seconds},
          {"prefill_seconds", result.prefill_seconds},
          {"later_seconds", result.later_seconds},
          {"most_prefill_tokens_per_second", result.most_prefill_rate},
          {"pays", result.pays}};
}

}  // namespace penstock
