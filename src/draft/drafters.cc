#include "draft/drafters.h"

namespace penstock {

using MakeDrafter = Result<std::unique_ptr<Drafter>>(DrafterConfig config,
                                                     const DraftTarget& target);
MakeDrafter make_model_drafter, make_ngram_drafter, make_early_exit_drafter, make_medusa_drafter,
    make_mtp_drafter, make_eagle3_drafter, make_grammar_drafter;

namespace {

struct Row {
  const char* name;
  MakeDrafter* make;
};

// THE list. A new one is a file, its function above and its row.
constexpr Row kDrafters[] = {
    {"draft", make_model_drafter},
    {"ngram", make_ngram_drafter},
    {"early-exit", make_early_exit_drafter},
    {"medusa", make_medusa_drafter},
    {"mtp", make_mtp_drafter},
    {"eagle3", make_eagle3_drafter},
    {"grammar", make_grammar_drafter},
};

}  // namespace

std::string drafter_names() {
  std::string names;
  for (const Row& row : kDrafters) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<std::unique_ptr<Drafter>> make_drafter(DrafterConfig config, const DraftTarget& target) {
  for (const Row& row : kDrafters) {
    if (config.engine.spec == row.name) return row.make(std::move(config), target);
  }
  return errorf(ErrorCode::kInvalidArgument, "spec: expected one of {}, got '{}'", drafter_names(),
                config.engine.spec);
}

}  // namespace penstock
