#include "cli/planning/plan_spec.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/bench/step_times.h"
#include "cli/options/models.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

constexpr int kMaxLength = 63;  // maximum nodes of a draft

Result<std::unique_ptr<WeightSource>> open_model(const std::string& model, const std::string& shape,
                                                 const std::string& type) {
  if (!shape.empty()) return make_synthetic_source(shape, type);
  ASSIGN_OR_RETURN(const auto path, find_model(model));
  return open_weights(path);
}

nlohmann::json estimate_json(const SpeculationEstimate& row) {
  return {
      {"length", row.length},
      {"tokens_per_round", row.tokens_per_round},
      {"accepted", row.tokens_per_round - 1},
      {"round_ms", row.round_seconds * 1e3},
      {"tokens_per_second", row.round_seconds > 0 ? row.tokens_per_round / row.round_seconds : 0.0},
      {"speedup", row.speedup}};
}

void print_table(const std::vector<SpeculationEstimate>& rows, int best) {
  fmt::print("{:>6}  {:>12}  {:>9}  {:>9}  {:>8}\n", "drafts", "tokens/round", "ms/round",
             "tokens/s", "speed-up");
  for (const SpeculationEstimate& row : rows) {
    const double rate = row.round_seconds > 0 ? row.tokens_per_round / row.round_seconds : 0;
    fmt::print("{:>6}  {:>12.3f}  {:>9.3f}  {:>9.1f}  {:>7.2f}x{}\n", row.length,
               row.tokens_per_round, row.round_seconds * 1e3, rate, row.speedup,
               row.length == best ? "  best" : "");
  }
}

}  // namespace

SpecPlan::SpecPlan(CLI::App& app) {
  const char* group = "Speculation";
  app.add_flag("--spec", wanted,
               "estimate speculative decoding: tokens per round and speed-up by draft length")
      ->group(group);
  app.add_option("--acceptance", acceptance,
                 "chance that a drafted token is accepted; several, for the first, second, … token "
                 "of a draft")
      ->delimiter(',')
      ->group(group);
  app.add_option("--spec-length", length,
                 "drafted tokens per round; 0 is every length to --max-spec-length")
      ->check(CLI::Range(0, kMaxLength))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-spec-length", max_length, "longest draft to try")
      ->check(CLI::Range(1, kMaxLength))
      ->capture_default_str()
      ->group(group);
  app.add_option("--target-ms", target_ms,
                 "a step without drafts, milliseconds; measured when not given")
      ->group(group);
  app.add_option(
         "--verify-ms", verify_ms,
         "a step that verifies 1, 2, … drafted tokens, milliseconds; as --target-ms when not given")
      ->delimiter(',')
      ->group(group);
  app.add_option("--draft-ms", draft_ms, "one drafted token, milliseconds")->group(group);
  app.add_option("--draft-round-ms", draft_round_ms, "drafting, once a round, milliseconds")
      ->capture_default_str()
      ->group(group);
  app.add_option("--draft-model", draft_model, "measure --draft-ms with this model")->group(group);
  app.add_option("-t,--threads", threads,
                 "compute threads of the measurement; 0 is as many as the process may use")
      ->capture_default_str()
      ->group(group);
}

Status SpecPlan::check() const {
  if (acceptance.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--acceptance: expected the chance that a drafted token is accepted, such as "
                  "0.7, got none");
  }
  for (const double a : acceptance) {
    if (!(a >= 0 && a <= 1))
      return errorf(ErrorCode::kInvalidArgument, "--acceptance: expected 0 to 1, got {}", a);
  }
  const auto milliseconds = [](const char* name, double value) -> Status {
    if (value >= 0 && value < 1e9) return {};
    return errorf(ErrorCode::kInvalidArgument, "{}: expected milliseconds >= 0, got {}", name,
                  value);
  };
  RETURN_IF_ERROR(milliseconds("--target-ms", target_ms));
  RETURN_IF_ERROR(milliseconds("--draft-ms", std::max(draft_ms, 0.0)));
  RETURN_IF_ERROR(milliseconds("--draft-round-ms", draft_round_ms));
  for (const double value : verify_ms) RETURN_IF_ERROR(milliseconds("--verify-ms", value));
  if (!verify_ms.empty() && target_ms == 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--verify-ms: needs --target-ms, the step without drafts");
  }
  return {};
}

Result<SpeculationCosts> SpecPlan::costs(const std::string& model, const std::string& shape,
                                         const std::string& type) const {
  SpeculationCosts costs{.draft_token = std::max(draft_ms, 0.0) / 1e3,
                         .draft_round = draft_round_ms / 1e3};
  StepTimesConfig config{.ops = {.n_threads = threads}};
  if (target_ms > 0) {
    costs.plain = target_ms / 1e3;
    if (!verify_ms.empty()) costs.verify = {costs.plain};
    for (const double ms : verify_ms) costs.verify.push_back(ms / 1e3);
  } else {
    ASSIGN_OR_RETURN(const auto source, open_model(model, shape, type));
    config.max_rows = 1 + std::max(length, max_length);
    ASSIGN_OR_RETURN(costs.verify, measure_step_times(*source, config));
    costs.plain = costs.verify[0];
  }
  if (draft_ms < 0 && !draft_model.empty()) {
    ASSIGN_OR_RETURN(const auto source, open_model(draft_model, "", ""));
    config.max_rows = 1;
    ASSIGN_OR_RETURN(const auto times, measure_step_times(*source, config));
    costs.draft_token = times[0];
  }
  return costs;
}

Status SpecPlan::run(const std::string& model, const std::string& shape, const std::string& type,
                     bool json) const {
  RETURN_IF_ERROR(check());
  ASSIGN_OR_RETURN(const SpeculationCosts costs, this->costs(model, shape, type));
  const int longest = std::max(length, max_length);
  const SpeculationEstimate best = best_speculation(acceptance, longest, costs);
  std::vector<SpeculationEstimate> rows;
  for (int k = length; k <= (length > 0 ? length : longest); ++k) {
    rows.push_back(estimate_speculation(acceptance, k, costs));
  }
  if (json) {
    nlohmann::json object = {{"acceptance", acceptance},
                             {"target_ms", costs.plain * 1e3},
                             {"draft_ms", costs.draft_token * 1e3},
                             {"draft_round_ms", costs.draft_round * 1e3},
                             {"verify_ms", nlohmann::json::array()},
                             {"lengths", nlohmann::json::array()},
                             {"best", estimate_json(best)}};
    for (size_t i = 1; i < costs.verify.size(); ++i)
      object["verify_ms"].push_back(costs.verify[i] * 1e3);
    for (const SpeculationEstimate& row : rows) object["lengths"].push_back(estimate_json(row));
    fmt::print("{}\n", object.dump());
    return {};
  }
  fmt::print(
      "acceptance {:.3f}, a step {:.3f} ms, verifying one drafted token {:.3f} ms, a drafted token "
      "{:.3f} ms\n",
      fmt::join(acceptance, ", "), costs.plain * 1e3, costs.verify_seconds(1) * 1e3,
      costs.draft_token * 1e3);
  fmt::print(
      "tokens per round = (1 - a^(k+1)) / (1 - a), speed-up = tokens per round x step / round\n");
  print_table(rows, best.length);
  if (best.length == 0) fmt::print("no length is faster than plain decoding\n");
  return {};
}

}  // namespace penstock
