// Stages of a pipeline: what they compute one after the other is, to the bit, what one model does.
#include "model/load/stages.h"
#include "model/arch/read_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "formats/lora.h"
#include "formats/weight_source.h"
#include "model/ranks.h"
#include "model/runner.h"
#include "model/sources/synthetic.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::max_difference;
using testing::Rows;
using testing::Runner;

const std::vector<int> kStageTokens = {3, 17, 5, 22, 9, 3, 41, 8, 30, 12, 7, 2};

std::vector<fs::path> tiny_models(const char* kind = "models") {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / kind)) {
    paths.push_back(entry.path());
    if (fs::exists(entry.path() / "model.gguf")) paths.push_back(entry.path() / "model.gguf");
  }
  std::ranges::sort(paths);
  return paths;
}

// The stages of a model with a backend and a cache each, in one process.
class StagedModel {
 public:
  StagedModel(const fs::path& path, int n_stages, const std::vector<Ops*>& ops,
              bool of_states = false)
      : ops_(ops) {
    for (int stage = 0; stage < n_stages; ++stage) {
      sources_.push_back(open_weights(path).value());
      Ops& own = *ops[static_cast<size_t>(stage)];
      const Stage part{stage, n_stages};
      auto model = of_states ? Model::load_states(*sources_.back(), own, part)
                             : Model::load_shard(*sources_.back(), own, {}, {true, part});
      if (!model) throw std::runtime_error(model.error().message);
      models_.push_back(std::move(*model));
      runners_.emplace_back(*models_.back(), *ops[static_cast<size_t>(stage)], 16);
    }
  }
  Model& model(int stage) { return *models_[static_cast<size_t>(stage)]; }
  const Rows& hidden() const { return runners_.back().hidden(); }

  Rows step(const std::vector<Runner::Part>& parts) {
    Rows rows;
    std::vector<float> stream;
    for (size_t stage = 0; stage < models_.size(); ++stage) {
      ForwardOptions options;
      options.stage_input = stream;
      rows = runners_[stage].step(parts, options);
      stream.clear();
      for (const auto& row : runners_[stage].stream())
        stream.insert(stream.end(), row.begin(), row.end());
    }
    return rows;
  }

 private:
  std::vector<Ops*> ops_;
  std::vector<std::unique_ptr<WeightSource>> sources_;
  std::vector<std::unique_ptr<Model>> models_;
  std::vector<Runner> runners_;
};

// A prompt in two chunks beside another, then some tokens one by one.
template <class M>
Rows rows_of_steps(M& model) {
  const auto part = [](int first, int n, int sequence) {
    return Runner::Part{sequence, {kStageTokens.begin() + first, kStageTokens.begin() + first + n}};
  };
  Rows rows = model.step({part(0, 5, 0)});
  for (auto& row : model.step({part(5, 4, 0), part(2, 6, 1)})) rows.push_back(row);
  for (int i = 9; i < 12; ++i)
    for (auto& row : model.step({part(i, 1, 0), part(i - 1, 1, 1)})) rows.push_back(row);
  return rows;
}

std::vector<std::unique_ptr<Ops>> backends(int n) {
  std::vector<std::unique_ptr<Ops>> ops;
  for (int i = 0; i < n; ++i) ops.push_back(make_ops("cpu", {.n_threads = 1}).value());
  return ops;
}

std::vector<Ops*> pointers(const std::vector<std::unique_ptr<Ops>>& owned) {
  std::vector<Ops*> ops;
  for (const auto& each : owned) ops.push_back(each.get());
  return ops;
}

class GoldenStages : public ::testing::TestWithParam<fs::path> {};

TEST_P(GoldenStages, GiveTheBitsOfOneModel) {
  const auto ops = backends(4);
  const auto source = open_weights(GetParam()).value();
  const auto whole = Model::load(*source, *ops[3]).value();
  Runner one(*whole, *ops[3], 16);
  const Rows expected = rows_of_steps(one);
  for (const int n_stages : {2, 3}) {
    const auto cut = cut_stages(whole->config(), layer_bytes(*source, whole->config()), n_stages);
    if (!cut) {  // too few layers, or too few places to cut
      EXPECT_THAT(cut.error().message, HasSubstr("pipeline_parallel_size"));
      const ModelConfig& config = whole->config();
      EXPECT_TRUE(n_stages > config.n_layers || config.layers_differ() ||
                  config.latent.indexer.top_k > 0 || config.experts.shortcut ||
                  config.residual.recalls || config.shared.ffn_dim > 0)
          << cut.error().message;
      continue;
    }
    StagedModel stages(GetParam(), n_stages, pointers(ops));
    EXPECT_EQ(rows_of_steps(stages), expected) << n_stages << " stages";
  }
}

std::string stage_name(const ::testing::TestParamInfo<fs::path>& info) {
  return info.param.extension() == ".gguf" ? info.param.parent_path().filename().string() + "_gguf"
                                           : info.param.filename().string() + "_hf";
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenStages, ::testing::ValuesIn(tiny_models()), stage_name);

// Models that give states: no stage has an output matrix, and of tied ones only the first the
// embedding. Where all layers are one, every stage has it.
class StagesOfStates : public ::testing::TestWithParam<fs::path> {};

TEST_P(StagesOfStates, AreTheBitsOfOneModel) {
  const auto ops = backends(4);
  const auto source = open_weights(GetParam()).value();
  const auto whole = Model::load_states(*source, *ops[3]).value();
  const std::vector<Runner::Part> parts = {{0, {3, 17, 5, 22, 9, 3, 12, 8}}, {1, {7, 2, 19}}};
  Runner one(*whole, *ops[3], 16);
  one.step(parts);
  for (int n_stages = 2; n_stages <= std::min(3, whole->config().n_layers); ++n_stages) {
    StagedModel stages(GetParam(), n_stages, pointers(ops), true);
    int64_t bytes = 0;
    for (int stage = 0; stage < n_stages; ++stage) bytes += stages.model(stage).weight_bytes();
    if (whole->config().repeats(1)) {
      EXPECT_GT(bytes, whole->weight_bytes());
    } else {
      EXPECT_EQ(bytes, whole->weight_bytes());
    }
    stages.step(parts);
    EXPECT_EQ(stages.hidden(), one.hidden()) << n_stages << " stages";
  }
}

std::vector<fs::path> models_of_staged_states() {
  std::vector<fs::path> paths = tiny_models("encoders");
  for (const char* decoder : {"qwen3", "llama3", "gemma3", "qwen3_next"})
    paths.push_back(tests_dir() / "golden" / "models" / decoder);
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Tiny, StagesOfStates, ::testing::ValuesIn(models_of_staged_states()),
                         stage_name);

// Each stage takes of an adapter what is for its layers.
TEST(StagesWithAdapters, GiveTheBitsOfOneModel) {
  int n = 0;
  for (const auto& entry : fs::directory_iterator(tests_dir() / "golden" / "lora")) {
    const fs::path base = tests_dir() / "golden" / "models" / entry.path().stem();
    SCOPED_TRACE(base);
    const auto ops = backends(3);
    const auto source = open_weights(base).value();
    const auto whole = Model::load(*source, *ops[2]).value();
    if (!cut_stages(whole->config(), layer_bytes(*source, whole->config()), 2)) continue;
    const LoraAdapter adapter = open_lora(entry.path()).value();
    ASSERT_TRUE(whole->put_adapter(1, adapter, *ops[2]));
    const std::vector<Runner::Part> parts = {{0, kStageTokens, 1}, {1, {5, 6, 7}}};
    Runner one(*whole, *ops[2], 16);
    const Rows expected = one.step(parts);
    StagedModel stages(base, 2, pointers(ops));
    for (int stage = 0; stage < 2; ++stage) {
      const Status put =
          stages.model(stage).put_adapter(1, adapter, *ops[static_cast<size_t>(stage)]);
      ASSERT_TRUE(put) << put.error().message;
    }
    EXPECT_EQ(stages.step(parts), expected);
    ++n;
  }
  EXPECT_GE(n, 8);
}

// Stages whose layers several ranks share: four ranks, of which the first two have the first
// layers.
TEST(StagesOfShards, GiveWhatTheWholeModelGives) {
  const fs::path path = tests_dir() / "golden" / "models" / "llama2";
  const auto ops = backends(1);
  const auto source = open_weights(path).value();
  const auto whole = Model::load(*source, *ops[0]).value();
  Runner one(*whole, *ops[0], 16);
  const Rows expected = rows_of_steps(one);
  std::vector<Rows> shared(2);
  testing::with_groups(2, 2, [&](Communicator& ranks, Ops& own_ops) {
    const int stage = ranks.rank() / 2;
    const auto own_source = open_weights(path).value();
    const auto model = Model::load_shard(*own_source, own_ops, {}, {true, {stage, 2}}).value();
    testing::StageRunner runner(*model, own_ops, ranks, stage);
    const Rows rows = rows_of_steps(runner);
    if (stage == 1) shared[static_cast<size_t>(ranks.shard().rank)] = rows;
  });
  EXPECT_EQ(shared[0], shared[1]);
  EXPECT_LE(max_difference(shared[0], expected), 1e-5f * 20);
}

// A part is a part.
TEST(Stages, HoldTheirLayersOnly) {
  const fs::path path = tests_dir() / "golden" / "models" / "llama2";
  const auto ops = backends(1);
  const auto source = open_weights(path).value();
  const auto whole = Model::load(*source, *ops[0]).value();
  int64_t weights = 0, cache = 0, active = 0;
  for (int stage = 0; stage < 2; ++stage) {
    const auto model = Model::load_shard(*source, *ops[0], {}, {true, {stage, 2}}).value();
    weights += model->weight_bytes();
    active += model->active_weight_bytes();
    cache += model->cache_spec(KvDType::kF16, 16).block_bytes(0);
    EXPECT_LT(model->weight_bytes(), whole->weight_bytes());
    EXPECT_EQ(model->cache_spec(KvDType::kF16, 16).n_groups(),
              whole->cache_spec(KvDType::kF16, 16).n_groups());
  }
  const bool tied = whole->config().embedding.tied;
  EXPECT_EQ(active, whole->active_weight_bytes());
  if (!tied) {
    EXPECT_EQ(weights, whole->weight_bytes());
  }
  EXPECT_EQ(cache, whole->cache_spec(KvDType::kF16, 16).block_bytes(0));
}

ModelConfig layers_alone(int n) {
  ModelConfig config;
  config.arch = "llama", config.n_layers = n;
  config.layers.resize(static_cast<size_t>(n));
  return config;
}

std::vector<int> firsts(const Result<std::vector<Shard::Range>>& stages) {
  std::vector<int> result;
  for (const Shard::Range& stage : stages.value()) result.push_back(stage.first);
  return result;
}

TEST(CutStages, TakesTheSlowestAsShortAsCanBe) {
  ModelConfig config = layers_alone(8);
  LayerBytes bytes{std::vector<int64_t>(8, 10), 0};
  EXPECT_EQ(firsts(cut_stages(config, bytes, 1)), (std::vector<int>{0}));
  EXPECT_EQ(firsts(cut_stages(config, bytes, 2)), (std::vector<int>{0, 4}));
  EXPECT_EQ(firsts(cut_stages(config, bytes, 8)), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  bytes.output = 40;  // as much as half of the layers
  EXPECT_EQ(firsts(cut_stages(config, bytes, 2)), (std::vector<int>{0, 6}));
  EXPECT_EQ(cut_stages(config, bytes, 9).error().message,
            "pipeline_parallel_size 9: expected at most 8, for llama of 8 layers");
}

// Of a file whose output matrix has 6 bits and its layers 4: a weight counts as much as any other.
TEST(CutStages, CountsWhatIsMultiplied) {
  ModelConfig config = config_from_shape("llama-3.2-1b").value();
  config.model_dim = 256, config.ffn_dim = 1024, config.vocab_size = 16032;
  config.n_heads = 8, config.n_kv_heads = 2, config.head_dim = 32;
  for (RopeConfig& rope : config.ropes) rope.rotary_dim = 32;
  const double table = 256.0 * 16032, layers = static_cast<double>(config.n_parameters()) - table;
  std::vector<int> cut;
  for (const char* type : {"bf16", "q4_k_m"}) {
    const auto source = make_synthetic_source(config, type).value();
    const LayerBytes bytes = layer_bytes(*source, config);
    const auto of_layers =
        static_cast<double>(std::accumulate(bytes.layers.begin(), bytes.layers.end(), int64_t{0}));
    EXPECT_NEAR(static_cast<double>(bytes.output) / of_layers, table / layers, 0.01) << type;
    cut.push_back(firsts(cut_stages(config, bytes, 2))[1]);
  }
  EXPECT_EQ(cut[0], cut[1]);
}

TEST(CutStages, KeepsLayersThatShareKeysTogether) {
  ModelConfig config = layers_alone(8);
  const LayerBytes bytes{std::vector<int64_t>(8, 10), 0};
  for (size_t i = 4; i < 8; ++i) config.layers[i].kv_layer = i % 2 == 0 ? 2 : 3;
  EXPECT_EQ(firsts(cut_stages(config, bytes, 2)), (std::vector<int>{0, 2}));
  EXPECT_EQ(cut_stages(config, bytes, 4).error().message,
            "pipeline_parallel_size 4: expected at most 3, for llama of 8 layers, of which those "
            "that share keys and values stay together");
}

}  // namespace
}  // namespace penstock
