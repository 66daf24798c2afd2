#include "draft/synthetic.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

// Differs from Drafter's defaults in everything that it says of itself.
class Special : public Drafter {
 public:
  explicit Special(std::vector<std::string>* calls) : calls_(calls) {}
  const char* name() const override { return "special"; }
  bool one_pass() const override { return true; }
  int max_nodes() const override { return 5; }
  bool wants_hidden() const override { return true; }
  bool costs_nothing() const override { return true; }
  int64_t weight_bytes() const override { return 11; }
  int64_t kv_bytes_per_token() const override { return 12; }
  Status start(KvCache&, int64_t own_tokens) override {
    calls_->push_back("start " + std::to_string(own_tokens));
    return make_error(ErrorCode::kUnsupported, "special");
  }
  void propose(std::span<const DraftRequest>, std::span<DraftTree>) override {
    calls_->push_back("propose");
  }
  int n_passes() const override { return 3; }
  void accepted(std::span<const DraftOutcome> outcomes) override {
    calls_->push_back("accepted " + std::to_string(outcomes.size()));
  }
  void forget(SeqId) override { calls_->push_back("forget"); }

 private:
  std::vector<std::string>* calls_;
};

// What is asked of a synthetic drafter it answers as the drafter behind it: that one's costs are to
// be measured.
TEST(SyntheticDrafter, IsInAllButItsGuessesTheDrafterBehindIt) {
  std::vector<std::string> calls;
  const Special special(&calls);
  const auto drafter = make_synthetic_drafter(std::make_unique<Special>(&calls), 0.5);
  EXPECT_EQ(drafter->one_pass(), special.one_pass());
  EXPECT_EQ(drafter->max_nodes(), special.max_nodes());
  EXPECT_EQ(drafter->wants_hidden(), special.wants_hidden());
  EXPECT_EQ(drafter->costs_nothing(), special.costs_nothing());
  EXPECT_EQ(drafter->weight_bytes(), special.weight_bytes());
  EXPECT_EQ(drafter->kv_bytes_per_token(), special.kv_bytes_per_token());
  EXPECT_EQ(drafter->n_passes(), special.n_passes());
  CacheSpec spec;
  spec.layers.push_back({.n_kv_heads = 1, .head_dim = 32});
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  const int one_block[] = {1};
  const auto cache = ops->make_cache(spec, one_block).value();
  EXPECT_EQ(drafter->start(*cache, 9).error().code, ErrorCode::kUnsupported);
  drafter->propose({}, {});
  drafter->accepted({});
  drafter->forget(SeqId{1});
  EXPECT_EQ(calls, (std::vector<std::string>{"start 9", "propose", "accepted 0", "forget"}));
}

}  // namespace
}  // namespace penstock
