// Next-token layers of tiny checkpoints and layers of EAGLE-3 propose what references in PyTorch
// propose (tools/tiny_newer_models.py, tools/make_tiny_eagle.py), from directories and GGUF files,
// on a backend that shows no tensor too; and no text changes by them.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "draft/drafters.h"
#include "engine/collector.h"
#include "formats/temp_dir.h"
#include "model/batch_builder.h"
#include "ops/host_rows.h"
#include "sampling/sampler.h"
#include "support/device_ops.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kGolden = tests_dir() / "golden" / "models",
               kEagles = tests_dir() / "golden" / "eagle3";

// "deepseek_v3_mtp", "deepseek_v3_mtp/model.gguf", or "eagle3/llama".
struct LayerCase {
  explicit LayerCase(const std::string& name) {
    const bool eagle = name.starts_with("eagle3/");
    const fs::path at = eagle ? kEagles / name.substr(7) : kGolden / name;
    spec = eagle ? "eagle3" : "mtp";
    model = eagle ? at / "target" : at;
    if (eagle) heads = (at / "head").string();
    golden = eagle ? at / "golden.txt"
                   : (at.extension() == ".gguf" ? at.parent_path() : at) / "golden_mtp.txt";
  }
  std::string spec, heads;
  fs::path model, golden;
};

struct Example {
  std::vector<TokenId> prompt, proposed;
};

std::vector<Example> read_examples(const fs::path& path) {
  std::ifstream file(path);
  std::vector<Example> examples;
  for (std::string line; std::getline(file, line);) {
    Example& example = examples.emplace_back();
    std::istringstream words(line);
    std::vector<TokenId>* to = &example.prompt;
    for (std::string word; words >> word;) {
      if (word == "|") {
        to = &example.proposed;
      } else {
        to->push_back(static_cast<TokenId>(std::stoi(word)));
      }
    }
  }
  return examples;
}

struct LayerTarget {
  std::unique_ptr<Ops> ops;
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Drafter> drafter;

  LayerTarget(const LayerCase& of, bool on_device, int max_batch = 2048) {
    ops = make_ops("cpu", {.n_threads = 1}).value();
    if (on_device)
      ops = std::make_unique<DeviceOps>(std::move(ops),
                                        [](const SampleRow& row, std::span<float> logits) {
                                          return Sampler().draw(row, logits);
                                        });
    source = open_weights(of.model).value();
    model = Model::load(*source, *ops).value();
    const CacheSpec spec = model->cache_spec(KvDType::kF32, 16);
    const std::vector<int> n_blocks(static_cast<size_t>(std::max(1, spec.n_groups())), 16);
    cache = ops->make_cache(spec, n_blocks).value();
    DrafterConfig config;
    config.engine.spec = of.spec;
    config.engine.spec_heads = of.heads;
    config.engine.block_size = 16;
    config.engine.max_num_batched_tokens = max_batch;
    config.kv_dtype = KvDType::kF32;
    drafter = make_drafter(std::move(config), {model.get(), ops.get(), source.get()}).value();
    EXPECT_TRUE(drafter->start(*cache, 1024));
  }

  // The target's states of all tokens.
  std::vector<std::vector<float>> states(std::span<const TokenId> tokens) {
    const GroupBlocks kv = consecutive_blocks(0, static_cast<int>(tokens.size()), 16);
    BatchBuilder builder(cache->spec());
    builder.add({.tokens = tokens, .kv = {&kv, 1}});
    HostRows rows(*ops);
    rows.set(
        model->forward(builder.build(), *cache, *ops, {.states = true, .taps = drafter->taps()})
            .states);
    ops->wait(ops->submit());
    std::vector<std::vector<float>> result;
    for (int i = 0; i < static_cast<int>(tokens.size()); ++i)
      result.emplace_back(rows.row(i).begin(), rows.row(i).end());
    return result;
  }
};

class LayerDrafters : public testing::TestWithParam<std::string> {
 protected:
  const LayerCase of_{GetParam()};
};

TEST_P(LayerDrafters, ProposeWhatTheReferenceProposes) {
  for (const bool on_device : {false, true}) {
    LayerTarget target(of_, on_device);
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.max_tokens = 100;
    const auto spec = SamplingSpec::make(greedy, {}, 1, target.model->config().vocab_size);
    uint64_t id = 0;
    for (const Example& example : read_examples(of_.golden)) {
      const auto states = target.states(example.prompt);
      const int n = static_cast<int>(example.prompt.size());
      // Seen at once, and in parts, of which each is drafted behind.
      for (const int step : {n, 3}) {
        ++id;
        DraftTree tree;
        for (int first = 0; first < n - 1; first += step) {
          const int end = std::min(n - 1, first + step);
          const auto tokens =
              std::span<const TokenId>(example.prompt).first(static_cast<size_t>(end) + 1);
          std::vector<std::span<const float>> rows(states.begin() + first, states.begin() + end);
          target.drafter->observe(
              {.id = SeqId(id), .tokens = tokens, .first = first, .rows = rows});
          target.drafter->accepted({});
          SamplerState state(spec, 0, tokens, 100);
          const DraftRequest request{.id = SeqId(id),
                                     .tokens = tokens,
                                     .n_prompt = static_cast<int>(tokens.size()),
                                     .max_nodes = static_cast<int>(example.proposed.size()),
                                     .state = &state};
          tree.clear();
          target.drafter->propose({&request, 1}, {&tree, 1});
        }
        EXPECT_EQ(tree.tokens, example.proposed) << n << " tokens, " << step << " at once";
        target.drafter->forget(SeqId(id));
      }
    }
    EXPECT_GT(id, 0);
  }
}

// Where none is wanted for long nothing is computed for a draft, not of the prompt either, and the
// next one begins with the newest states. How long a pass takes is not learned from one that takes
// in many states.
TEST_P(LayerDrafters, ForgetWhatWaitsWhereNoDraftIsWanted) {
  LayerTarget target(of_, false);
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 200;
  const auto spec = SamplingSpec::make(greedy, {}, 1, target.model->config().vocab_size);
  const Example example = read_examples(of_.golden).at(0);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 152; ++i) tokens.push_back(example.prompt[i % example.prompt.size()]);
  const auto states = target.states(tokens);
  const auto observe = [&](int id, int first, int end) {
    const std::vector<std::span<const float>> rows(states.begin() + first, states.begin() + end);
    target.drafter->observe({.id = SeqId(static_cast<uint64_t>(id)),
                             .tokens = std::span(tokens).first(static_cast<size_t>(end) + 1),
                             .first = first,
                             .rows = rows});
    target.drafter->accepted({});
  };
  const auto propose = [&](int id, int end) {
    const auto known = std::span<const TokenId>(tokens).first(static_cast<size_t>(end) + 1);
    SamplerState state(spec, 0, known, 200);
    const DraftRequest request{.id = SeqId(static_cast<uint64_t>(id)),
                               .tokens = known,
                               .n_prompt = static_cast<int>(known.size()),
                               .max_nodes = 3,
                               .state = &state};
    DraftTree tree;
    target.drafter->propose({&request, 1}, {&tree, 1});
    return tree.tokens;
  };
  observe(1, 0, 40);
  for (int i = 40; i < 150; ++i) observe(1, i, i + 1);
  observe(2, 96, 150);
  EXPECT_EQ(propose(1, 150), propose(2, 150));
  EXPECT_EQ(target.drafter->n_passes(), 0);
  observe(1, 150, 151), observe(2, 150, 151);
  EXPECT_EQ(propose(1, 151), propose(2, 151));
  EXPECT_EQ(target.drafter->n_passes(), 3);
  for (int i = 0; i < 64; ++i) target.drafter->accepted({});
  observe(3, 0, 100), observe(4, 68, 100);
  EXPECT_EQ(propose(3, 100), propose(4, 100)) << "a prompt that came when nobody wanted drafts";
}

// What waits at every layer fits into steps of few tokens, and the draft is that of long ones.
TEST_P(LayerDrafters, StepsOfFewTokensDraftToo) {
  SamplingParams greedy;
  greedy.temperature = 0;
  greedy.max_tokens = 200;
  const Example example = read_examples(of_.golden).at(0);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 152; ++i) tokens.push_back(example.prompt[i % example.prompt.size()]);
  std::vector<std::vector<TokenId>> drafts;
  for (const int most : {2048, 64, 16}) {
    LayerTarget target(of_, false, most);
    const auto spec = SamplingSpec::make(greedy, {}, 1, target.model->config().vocab_size);
    const auto states = target.states(tokens);
    const int n = static_cast<int>(tokens.size()) - 1;
    const auto observe = [&](int first, int end) {
      const std::vector<std::span<const float>> rows(states.begin() + first, states.begin() + end);
      target.drafter->observe({.id = SeqId(1),
                               .tokens = std::span(tokens).first(static_cast<size_t>(end) + 1),
                               .first = first,
                               .rows = rows});
    };
    for (int first = 0; first < n - 1; first += most) {
      observe(first, std::min(first + most, n - 1));
      target.drafter->accepted({});
    }
    observe(n - 1, n);
    SamplerState state(spec, 0, tokens, 200);
    const DraftRequest request{.id = SeqId(1),
                               .tokens = tokens,
                               .n_prompt = static_cast<int>(tokens.size()),
                               .max_nodes = 4,
                               .state = &state};
    DraftTree tree;
    target.drafter->propose({&request, 1}, {&tree, 1});
    EXPECT_EQ(tree.size(), 4) << most;
    drafts.push_back(tree.tokens);
  }
  EXPECT_EQ(drafts[1], drafts[0]);
  EXPECT_EQ(drafts[2], drafts[0]);
}

std::vector<std::vector<TokenId>> drafted_texts(const LayerCase& of, bool drafts, bool seeded,
                                                double& n_drafted) {
  EngineConfig config;
  config.model = of.model.string();
  config.spec = drafts ? of.spec : "off";
  if (drafts) config.spec_heads = of.heads;
  config.spec_length = "3";
  config.batch_invariant = true;
  config.threads = 1;
  config.max_model_len = 128;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;  // prompts come in parts
  config.kv_cache_memory = 64 << 20;
  const auto engine = Engine::open(config);
  EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
  std::vector<std::vector<TokenId>> result;
  if (!engine) return result;
  for (int round = 0; round < 2; ++round) {  // the second finds prefixes
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 5; ++i) {
      std::vector<TokenId> prompt;
      for (int k = 0; k < 3 + 22 * i; ++k)
        prompt.push_back(static_cast<TokenId>((7 * k + 5 * i) % 47 + 2));
      Request request = request_of(prompt, 25, 3);
      request.sampling.temperature = seeded ? 0.9f : 0.0f;
      request.sampling.ignore_eos = true;
      sinks.push_back(std::make_shared<Collector>());
      EXPECT_TRUE((*engine)->submit(request, sinks.back()));
    }
    while ((*engine)->step()) {
    }
    for (const auto& sink : sinks) result.push_back(sink->result.sequences.at(0).tokens);
  }
  n_drafted += (*engine)->metrics().spec_decode_num_draft_tokens.value;
  return result;
}

TEST_P(LayerDrafters, ChangeNoText) {
  for (const bool seeded : {false, true}) {
    double none = 0, drafted = 0;
    EXPECT_EQ(drafted_texts(of_, true, seeded, drafted), drafted_texts(of_, false, seeded, none));
    EXPECT_GT(drafted, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, LayerDrafters,
    testing::Values("deepseek_v3_mtp", "deepseek_v32_mtp", "deepseek_v32_mtp/model.gguf",
                    "glm4_moe_mtp", "glm4_moe_mtp/model.gguf", "glm4_moe_mtp2",
                    "glm4_moe_mtp2/model.gguf", "step3p5_mtp2", "step3p5_mtp2/model.gguf",
                    "qwen3_5_text_mtp", "qwen3_5_text_mtp/model.gguf", "qwen3_next_mtp",
                    "qwen3_next_mtp/model.gguf", "eagle3/llama", "eagle3/qwen3"),
    [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(name, [](char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

TEST(LayerDrafterErrors, SayWhatIsMissing) {
  const auto error_of = [](const fs::path& path) {
    EngineConfig config;
    config.model = (kGolden / path).string();
    config.spec = "mtp";
    config.threads = 1;
    config.max_model_len = 64;
    config.kv_cache_memory = 4 << 20;
    const auto engine = Engine::open(config);
    EXPECT_FALSE(engine) << path;
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_THAT(error_of("llama3"), HasSubstr("expected a tensor model.layers.2.eh_proj.weight"));
  EXPECT_THAT(error_of("qwen3_5_text"), HasSubstr("no layer that predicts further tokens"));
  EXPECT_THAT(error_of("deepseek_v3_mtp/model.gguf"), HasSubstr("blk.3.nextn.eh_proj.weight"));
  EXPECT_THAT(error_of("nemotron_h_moe_latent"),
              HasSubstr("of architecture nemotron_h_moe are not predicted"));
}

// What opening a checkpoint says whose config.json counts so many next-token layers.
std::string warning_of_mtp(int n_layers) {
  const TempDir dir;
  const fs::path golden = kGolden / "deepseek_v3_mtp";
  std::ifstream file(golden / "config.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string counted = "\"num_nextn_predict_layers\": ";
  const size_t at = text.find(counted + "1");
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos)
    text.replace(at, counted.size() + 1, counted + std::to_string(n_layers));
  std::ofstream(dir / "config.json") << text;
  fs::copy_file(golden / "model.safetensors", dir / "model.safetensors");
  EngineConfig config;
  config.model = dir.path().string();
  config.spec = "mtp";
  config.threads = 1;
  config.max_model_len = 64;
  config.kv_cache_memory = 4 << 20;
  testing::internal::CaptureStderr();
  const auto engine = Engine::open(config);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(engine) << engine.error().message;
  return said;
}

TEST(LayerDrafterWarnings, SayThatLayersAreMissing) {
  EXPECT_THAT(warning_of_mtp(3),
              HasSubstr("spec mtp: the file has 1 of 3 layers that predict further tokens; the "
                        "last one makes all further guesses"));
  EXPECT_EQ(warning_of_mtp(1), "");
}

// A copy of a golden layer with another config.json, or another file in the place of its tensors.
std::string error_of_eagle(const fs::path& target, const std::string& from, const std::string& to,
                           const fs::path& tensors = kEagles / "llama" / "head") {
  const TempDir dir;
  std::ifstream file(kEagles / "llama" / "head" / "config.json");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  std::ofstream(dir / "config.json") << text;
  fs::copy_file(tensors / "model.safetensors", dir / "model.safetensors");
  EngineConfig config;
  config.model = target.string();
  config.spec = "eagle3";
  config.spec_heads = dir.path().string();
  config.threads = 1;
  config.max_model_len = 64;
  config.kv_cache_memory = 4 << 20;
  const auto engine = Engine::open(config);
  return engine ? std::string() : engine.error().message;
}

TEST(LayerDrafterErrors, OfEagleSayWhatDoesNotFit) {
  const fs::path llama = kEagles / "llama" / "target", qwen = kEagles / "qwen3" / "target";
  const std::string vocab = R"("draft_vocab_size": 31)";
  EXPECT_EQ(error_of_eagle(llama, vocab, vocab), "");
  EXPECT_THAT(error_of_eagle(llama, vocab, R"("draft_vocab_size": 30)"),
              HasSubstr("tensor d2t: expected 30"));
  EXPECT_THAT(error_of_eagle(llama, vocab, R"("draft_vocab_size": 54)"),
              HasSubstr("draft_vocab_size"));
  EXPECT_THAT(error_of_eagle(llama, R"("hidden_size": 24)", R"("hidden_size": 32)"),
              HasSubstr("expected the target's width 24, got 32"));
  EXPECT_THAT(error_of_eagle(llama, R"("model_type": "llama")", R"("model_type": "qwen3")"),
              HasSubstr("expected model_type llama"));
  EXPECT_THAT(error_of_eagle(llama, vocab, vocab + R"(, "norm_before_fc": true)"),
              HasSubstr("norm_before_fc"));
  EXPECT_THAT(error_of_eagle(
                  llama, vocab,
                  vocab + R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 7, 2]})"),
              HasSubstr("[1,7,2] of the target are read, which has layers 0 to 6"));
  EXPECT_THAT(
      error_of_eagle(llama, vocab,
                     vocab + R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": []})"),
      HasSubstr("expected a list of 1 to 8 layers"));
  EXPECT_THAT(error_of_eagle(llama, vocab, vocab, kEagles / "qwen3" / "head"),
              HasSubstr("tensor d2t is missing"));
  EXPECT_THAT(error_of_eagle(llama, vocab, R"("draft_vocab_size": 53)", kEagles / "qwen3" / "head"),
              HasSubstr("fc.weight: expected shape [24, 72], got [24, 48]"));
  EXPECT_THAT(error_of_eagle(kGolden / "arcee", vocab, vocab), HasSubstr("2, n / 2 and n - 3"));
  EXPECT_THAT(error_of_eagle(kGolden / "gemma4", vocab, vocab),
              HasSubstr("architecture gemma4 cannot be read"));
  EngineConfig config;
  config.model = llama.string();
  config.spec = "eagle3";
  const auto none = Engine::open(config);
  EXPECT_THAT(none ? "" : none.error().message, HasSubstr("spec_heads: expected a directory"));
}

}  // namespace
}  // namespace penstock
