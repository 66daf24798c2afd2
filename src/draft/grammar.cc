// The drafter without a model: only text that grammars force is drafted, which the engine proposes
// before it asks any drafter.

#include "draft/drafters.h"

namespace penstock {
namespace {

class GrammarDrafter : public Drafter {
 public:
  const char* name() const override { return "grammar"; }
  int max_nodes() const override { return 0; }
  bool costs_nothing() const override { return true; }
  void propose(std::span<const DraftRequest>, std::span<DraftTree>) override {}
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_grammar_drafter(DrafterConfig, const DraftTarget&) {
  return std::make_unique<GrammarDrafter>();
}

}  // namespace penstock
