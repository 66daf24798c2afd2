// THE list of backends, best first; the last one is always available. A new backend is a folder
// that implements Ops, its function here and its row.
#include <spdlog/spdlog.h>

#include <ranges>
#include <string>
#include <vector>

#include "base/log.h"
#include "ops/ops.h"
#include "ops/self_test.h"

namespace penstock {

// Error: kInvalidArgument, it is not there, or what the environment or the config asks for is not
// available here.
using MakeOps = Result<std::unique_ptr<Ops>>(const OpsConfig& config);
MakeOps make_cpu_ops;
MakeOps make_cuda_ops, make_emulated_cuda_ops;

namespace {

struct Backend {
  std::string_view name;
  MakeOps* make;
  bool for_tests = false;  // not listed, and never chosen by "auto"
};

constexpr Backend kBackends[] = {
#ifdef PENSTOCK_CUDA_EMULATION
    {"cuda_emulated", make_emulated_cuda_ops, true},
#endif
    {"cuda", make_cuda_ops},
    {"cpu", make_cpu_ops},
};

}  // namespace

std::string backend_names() {
  std::string names;
  for (const Backend& backend : kBackends | std::views::reverse)
    if (!backend.for_tests) names += (names.empty() ? "" : ", ") + std::string(backend.name);
  return names;
}

std::string choose_backend(std::string_view name) {
  if (!name.empty() && name != "auto") return std::string(name);
  static const std::string kChosen = [] {
    std::vector<std::string_view> names;
    for (const Backend& backend : kBackends)
      if (!backend.for_tests) names.push_back(backend.name);
    const BackendChoice choice = choose_among(names);
    const auto level = choice.faulty ? spdlog::level::warn : spdlog::level::info;
    if (choice.why.empty()) log().info("backend auto: {}", choice.name);
    if (!choice.why.empty()) log().log(level, "backend auto: {}, for: {}", choice.name, choice.why);
    return choice.name;
  }();
  return kChosen;
}

Result<std::unique_ptr<Ops>> make_ops(std::string_view name, const OpsConfig& config) {
  const std::string chosen = choose_backend(name);
  for (const Backend& backend : kBackends)
    if (chosen == backend.name) return backend.make(config);
  return errorf(ErrorCode::kInvalidArgument,
                "backend '{}' does not exist: expected auto or one of {}", name, backend_names());
}

}  // namespace penstock
