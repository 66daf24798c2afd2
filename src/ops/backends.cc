// THE list of backends, best last. A new one is a folder that implements Ops, its function here and its row.
#include <ranges>
#include <string>

#include "ops/ops.h"

namespace penstock {

// Of a backend that is there. Error: kInvalidArgument, what the environment or the config asks for is not available here.
using MakeOps = Result<std::unique_ptr<Ops>>(const OpsConfig& config);
MakeOps make_cpu_ops;
MakeOps make_cuda_ops, make_emulated_cuda_ops;

namespace {

struct Backend {
  std::string_view name;
  MakeOps* make;
  bool (*available)();
  bool for_tests = false;  // not listed
};

constexpr Backend kBackends[] = {
#ifdef PENSTOCK_CUDA_EMULATION
    {"cuda_emulated", make_emulated_cuda_ops, [] { return false; }, true},
#endif
    {"cuda", make_cuda_ops, [] { return false; }},  // when asked for: it never ran on a GPU
    {"cpu", make_cpu_ops, [] { return true; }},
};

}  // namespace

std::string backend_names() {
  std::string names;
  for (const Backend& backend : kBackends | std::views::reverse)
    if (!backend.for_tests) names += (names.empty() ? "" : ", ") + std::string(backend.name);
  return names;
}

Result<std::unique_ptr<Ops>> make_ops(std::string_view name, const OpsConfig& config) {
  const Backend* chosen = nullptr;
  for (const Backend& backend : kBackends) {
    if (name == backend.name || ((name.empty() || name == "auto") && backend.available())) chosen = &backend;
  }
  if (chosen == nullptr) {
    return errorf(ErrorCode::kInvalidArgument, "backend '{}' does not exist: expected auto or one of {}",
                  name, backend_names());
  }
  return chosen->make(config);
}

}  // namespace penstock
