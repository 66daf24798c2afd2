// Drafters on a backend that draws by itself and shows no tensor: they propose what they propose on
// the CPU.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "draft/drafters.h"
#include "model/batch_builder.h"
#include "model/sources/synthetic.h"
#include "sampling/sampler.h"
#include "support/device_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Target {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;

  Target(std::unique_ptr<Ops> with, std::unique_ptr<WeightSource> from)
      : ops(std::move(with)), source(std::move(from)) {
    model = Model::load(*source, *ops).value();
    const int n_blocks[] = {64};
    cache = ops->make_cache(model->cache_spec(KvDType::kF32, 16), n_blocks).value();
  }
  DraftTarget seen() const { return {model.get(), ops.get(), source.get()}; }
};

std::unique_ptr<Ops> cpu() { return make_ops("cpu", {.n_threads = 1}).value(); }

std::unique_ptr<DeviceOps> device() {
  return std::make_unique<DeviceOps>(cpu(), [](const SampleRow& row, std::span<float> logits) {
    return Sampler().draw(row, logits);
  });
}

// Sequences whose next tokens are chosen in different ways, by the target's vocabulary.
struct Sequences {
  explicit Sequences(int vocab) {
    const auto add = [&](auto edit) {
      SamplingParams params;
      params.max_tokens = 100;
      params.seed = specs.size();
      edit(params);
      specs.push_back(SamplingSpec::make(params, {.end_ids = {0}}, *params.seed, vocab));
    };
    using P = SamplingParams;
    add([](P& p) { p.temperature = 0; });
    add([](P& p) { p.temperature = 0.8f, p.top_k = 20; });
    add([](P& p) { p.temperature = 0, p.repetition_penalty = 1.8f; });
    add([](P& p) { p.typical_p = 0.6f; });  // the host's
    add([](P& p) { p.seed.reset(); });      // drawn, with its distribution
    for (size_t i = 0; i < specs.size(); ++i) {
      tokens.push_back({});
      for (int k = 0; k < 20; ++k)
        tokens.back().push_back(static_cast<TokenId>((7 * k + 31 * i) % vocab));
      states.emplace_back(specs[i], static_cast<uint32_t>(i), std::span(tokens[i]).first(12), 100);
      GroupBlocks kv;
      for (uint32_t b = 0; b < 4; ++b)
        kv.blocks.push_back(BlockId{static_cast<uint32_t>(4 * i) + b});
      blocks.push_back(kv);
    }
  }

  std::vector<DraftTree> propose(Drafter& drafter) {
    std::vector<DraftRequest> requests;
    for (size_t i = 0; i < specs.size(); ++i) {
      requests.push_back({.id = SeqId(i),
                          .tokens = tokens[i],
                          .n_prompt = 12,
                          .kv = {&blocks[i], 1},
                          .max_nodes = 5,
                          .may_draw = !specs[i]->params.seed,
                          .state = &states[i]});
    }
    std::vector<DraftTree> trees(requests.size());
    drafter.propose(requests, trees);
    return trees;
  }

  std::vector<std::shared_ptr<const SamplingSpec>> specs;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<SamplerState> states;
  std::vector<GroupBlocks> blocks;
};

void expect_equal(const std::vector<DraftTree>& a, const std::vector<DraftTree>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    EXPECT_EQ(a[i].parents, b[i].parents) << i;
    EXPECT_EQ(a[i].drawn_from.size(), b[i].drawn_from.size()) << i;
  }
}

// A few blocks of every sequence as the target would have filled them.
void fill_cache(Target& target, const Sequences& sequences) {
  BatchBuilder builder(1, 16);
  for (size_t i = 0; i < sequences.tokens.size(); ++i)
    builder.add({.tokens = sequences.tokens[i], .kv = {&sequences.blocks[i], 1}});
  target.model->forward(builder.build(), *target.cache, *target.ops);
}

class DeviceDrafts : public ::testing::TestWithParam<const char*> {};

TEST_P(DeviceDrafts, AreThoseOfTheCpu) {
  std::vector<std::vector<DraftTree>> proposed;
  int n_drawn = 0;
  for (const bool on_device : {false, true}) {
    auto ops = on_device ? device() : nullptr;
    DeviceOps* drawing = ops.get();
    Target target(on_device ? std::unique_ptr<Ops>(std::move(ops)) : cpu(),
                  make_synthetic_source("tiny", "f32").value());
    Sequences sequences(target.model->config().vocab_size);
    DrafterConfig config;
    config.engine.spec = GetParam();
    config.engine.spec_exit_layer = 1;
    config.engine.max_model_len = 100;
    config.engine.max_num_batched_tokens = 2048;
    if (config.engine.spec == "draft")
      config.draft_source = make_synthetic_source("tiny", "q8_0").value();
    const auto drafter = make_drafter(std::move(config), target.seen()).value();
    ASSERT_TRUE(drafter->start(*target.cache, 1024));
    fill_cache(target, sequences);
    proposed.push_back(sequences.propose(*drafter));
    if (drawing != nullptr) n_drawn = drawing->n_drawn();
  }
  expect_equal(proposed[0], proposed[1]);
  for (const DraftTree& tree : proposed[0]) EXPECT_EQ(tree.size(), 5);
  EXPECT_EQ(n_drawn, 3 * 5);
}

INSTANTIATE_TEST_SUITE_P(Chains, DeviceDrafts, ::testing::Values("draft", "early-exit"),
                         [](const auto& info) {
                           return info.param[0] == 'd' ? "draft" : "early_exit";
                         });

TEST(DeviceMedusa, GuessesWhatItGuessesOnTheCpu) {
  std::vector<std::vector<DraftTree>> proposed;
  for (const bool on_device : {false, true}) {
    Target target(on_device ? std::unique_ptr<Ops>(device()) : cpu(),
                  open_weights(models_dir() / "penstock-stories-15m-q8_0.gguf").value());
    Sequences sequences(target.model->config().vocab_size);
    DrafterConfig config;
    config.engine.spec = "medusa";
    config.engine.spec_heads = models_dir() / "penstock-stories-15m-medusa";
    const auto drafter = make_drafter(std::move(config), target.seen()).value();
    ASSERT_TRUE(drafter->start(*target.cache, 1024));
    std::vector<std::vector<float>> hidden;
    for (size_t i = 0; i < sequences.specs.size(); ++i) {
      std::vector<float>& state = hidden.emplace_back(target.model->config().model_dim);
      for (size_t k = 0; k < state.size(); ++k)
        state[k] = std::sin(static_cast<float>(k * (i + 2)));
    }
    std::vector<DraftOutcome> outcomes;
    for (size_t i = 0; i < hidden.size(); ++i)
      outcomes.push_back({SeqId(i), sequences.tokens[i], 0, hidden[i]});
    drafter->accepted(outcomes);
    proposed.push_back(sequences.propose(*drafter));
  }
  expect_equal(proposed[0], proposed[1]);
  for (const DraftTree& tree : proposed[0]) EXPECT_EQ(tree.size(), 5);
}

}  // namespace
}  // namespace penstock
