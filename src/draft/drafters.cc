#include "draft/drafters.h"

#include "draft/early_exit.h"
#include "draft/medusa.h"
#include "draft/model_drafter.h"
#include "draft/ngram.h"

namespace penstock {
namespace {

using Make = Result<std::unique_ptr<Drafter>> (*)(DrafterConfig, const DraftTarget&);
struct Row {
  const char* name;
  Make make;
};

// THE list.
constexpr Row kDrafters[] = {
    {"draft", make_model_drafter},
    {"ngram", make_ngram_drafter},
    {"early-exit", make_early_exit_drafter},
    {"medusa", make_medusa_drafter},
};

}  // namespace

std::string drafter_names() {
  std::string names;
  for (const Row& row : kDrafters) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<std::unique_ptr<Drafter>> make_drafter(DrafterConfig config, const DraftTarget& target) {
  for (const Row& row : kDrafters) {
    if (config.kind == row.name) return row.make(std::move(config), target);
  }
  return errorf(ErrorCode::kInvalidArgument, "spec: expected one of {}, got '{}'", drafter_names(),
                config.kind);
}

}  // namespace penstock
