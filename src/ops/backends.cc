// THE list of backends, best last. A new one is a row here and a folder that implements Ops.
#include <string>

#include "ops/cpu/cpu_ops.h"
#include "ops/ops.h"

namespace penstock {
namespace {

struct Backend {
  std::string_view name;
  Result<std::unique_ptr<Ops>> (*make)(const OpsConfig& config);
  bool (*available)();
};

constexpr Backend kBackends[] = {
    {"cpu", make_cpu_ops, [] { return true; }},
};

}  // namespace

Result<std::unique_ptr<Ops>> make_ops(std::string_view name, const OpsConfig& config) {
  const Backend* chosen = nullptr;
  std::string names;
  for (const Backend& backend : kBackends) {
    if (name == backend.name || ((name.empty() || name == "auto") && backend.available())) chosen = &backend;
    names += names.empty() ? std::string(backend.name) : ", " + std::string(backend.name);
  }
  if (chosen == nullptr) {
    return errorf(ErrorCode::kInvalidArgument, "backend '{}' does not exist: expected auto or one of {}",
                  name, names);
  }
  return chosen->make(config);
}

}  // namespace penstock
