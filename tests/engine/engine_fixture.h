// An engine over a FakeModel, and the oracle's text.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>

#include "draft/drafters.h"
#include "engine/collector.h"
#include "engine/fake_drafter.h"
#include "engine/fake_model.h"
#include "engine/naive_beams.h"
#include "engine/open/engine_impl.h"
#include "engine/open/open.h"

namespace penstock {

Result<std::unique_ptr<Drafter>> make_grammar_drafter(DrafterConfig config,
                                                      const DraftTarget& target);

struct FakeEngineConfig {
  int vocab_size = 50;
  int block_size = 4;
  std::vector<int> n_blocks = {64};
  std::vector<int> windows = {0};
  int max_model_len = 200;
  EngineConfig engine;
  std::shared_ptr<DraftScript> drafts;  // null: no speculation
  int spec_length = 0;                  // 0 = automatic
  // without drafts: what grammars force is drafted
  bool draft_forced = false;
  bool device = false;                                  // the model draws by itself
  std::shared_ptr<std::atomic<uint64_t>> next_request;  // of several engines
  int n_stages = 1;                                     // of a pipeline
  double exchange_after = 1;                            // as in SchedulerConfig
  KvStoreSpec store;                                    // empty: none
  // makes another store of such images; empty: what `store` says
  std::function<std::shared_ptr<BlockStore>(BlockImages)> make_store;
  std::chrono::milliseconds longest_answer{5000};  // of that store
};

struct FakeEngine {
  explicit FakeEngine(FakeEngineConfig c = {}, uint64_t fingerprint = 0) : settings(c) {
    if (c.engine.max_num_seqs == 0) c.engine.max_num_seqs = 8;
    if (c.engine.max_num_batched_tokens == 0) c.engine.max_num_batched_tokens = 32;
    EngineParts parts;
    parts.fingerprint = fingerprint;
    parts.config = resolve_preset(c.engine).value();
    parts.info.vocab_size = c.vocab_size;
    parts.info.max_model_len = c.max_model_len;
    parts.info.block_size = c.block_size;
    parts.info.n_blocks = c.n_blocks[0];
    parts.info.eos_token_ids = {0};
    parts.max_num_seqs = parts.config.max_num_seqs;
    parts.max_num_batched_tokens = parts.config.max_num_batched_tokens;
    auto fake = std::make_unique<FakeModel>(c.vocab_size, c.n_blocks, c.windows, c.block_size);
    model = fake.get();
    if (c.device) fake->be_device();
    fake->be_pipeline(c.n_stages);
    parts.model = std::move(fake);
    auto policy = make_policy(parts.config.policy, policy_config(parts.config));
    SchedulerConfig scheduling = scheduler_config(parts.config, c.max_model_len);
    scheduling.exchange_after = c.exchange_after;
    if (!c.store.is_empty() || c.make_store) parts.store = open_store(c, *parts.model, fingerprint);
    store = parts.store.get();
    parts.next_request = c.next_request;
    parts.scheduler = std::make_unique<Scheduler>(scheduling, std::move(policy).value(), c.n_blocks,
                                                  c.windows, c.block_size);
    if (c.drafts) {
      parts.speculation = std::make_unique<Speculation>(std::make_unique<FakeDrafter>(c.drafts),
                                                        c.spec_length, c.windows.size() > 1);
    }
    if (!c.drafts && c.draft_forced) {
      parts.speculation = std::make_unique<Speculation>(make_grammar_drafter({}, {}).value(),
                                                        c.spec_length, c.windows.size() > 1);
    }
    engine = std::make_unique<EngineImpl>(std::move(parts));
  }

  static std::unique_ptr<KvStore> open_store(const FakeEngineConfig& c, const StepModel& model,
                                             uint64_t fingerprint) {
    std::vector<int64_t> block_bytes;
    for (size_t g = 0; g < c.windows.size(); ++g)
      block_bytes.push_back(model.block_bytes(static_cast<int>(g)));
    BlockImages images({fingerprint, 0}, c.block_size, block_bytes);
    if (c.make_store)
      return std::make_unique<KvStore>(c.make_store(std::move(images)), c.block_size,
                                       c.longest_answer);
    return KvStore::open(c.store, images, c.block_size, c.n_blocks).value();
  }

  std::shared_ptr<Collector> submit(Request request, RequestId* id = nullptr) {
    auto sink = std::make_shared<Collector>();
    const auto result = engine->submit(std::move(request), sink);
    if (!result) throw std::runtime_error(result.error().message);
    if (id != nullptr) *id = *result;
    return sink;
  }
  void run() {
    while (engine->step()) engine->scheduler().check_invariants();
    engine->scheduler().check_invariants();
  }
  // The text of sequence `index`, computed alone and without a cache. REQUIRES: a seed.
  std::vector<TokenId> expected(const Request& request, int index = 0) const {
    const auto spec =
        SamplingSpec::make(request.sampling, {.end_ids = {0}, .matcher = request.matcher},
                           *request.sampling.seed, settings.vocab_size);
    SamplerState state(spec, index, request.prompt, 100);
    std::vector<TokenId> tokens = request.prompt, output;
    const size_t longest =
        std::min<size_t>(settings.max_model_len, tokens.size() + request.sampling.max_tokens);
    Sampler sampler;
    std::vector<TokenLogprob> none;
    while (tokens.size() < longest) {
      std::vector<float> row = model->logits_of(tokens);
      const TokenId token =
          sampler.sample({state, tokens, static_cast<int>(request.prompt.size())}, row, none).token;
      if (token == kNoToken) break;
      tokens.push_back(token);
      output.push_back(token);
      state.append(token);
      if (state.must_end()) break;
      if (token == 0 && !request.sampling.ignore_eos) break;
      if (std::ranges::find(request.sampling.stop_token_ids, token) !=
          request.sampling.stop_token_ids.end())
        break;
    }
    return output;
  }

  // The finished beams of a request with use_beam_search, best first.
  std::vector<NaiveBeam> expected_beams(const Request& request) const {
    const SamplingParams& params = request.sampling;
    NaiveBeamConfig config{
        params.beam_width, params.max_tokens, params.length_penalty, params.early_stopping, {}};
    config.max_new =
        std::min(config.max_new, settings.max_model_len - static_cast<int>(request.prompt.size()));
    if (!params.ignore_eos) config.ends = {0};
    return naive_beams(request.prompt, config, [&](const std::vector<TokenId>& tokens) {
      return masked(request, tokens, model->logits_of(tokens));
    });
  }
  // The logits that follow the tokens, with what the request's grammar leaves of them.
  static std::vector<float> masked(const Request& request, std::span<const TokenId> tokens,
                                   std::vector<float> row) {
    if (request.matcher == nullptr) return row;
    const auto matcher = request.matcher->fork();
    for (const TokenId token : tokens.subspan(request.prompt.size())) matcher->append(token);
    std::vector<uint32_t> mask((row.size() + 31) / 32);
    matcher->fill_mask(mask);
    for (size_t token = 0; token < row.size(); ++token) {
      if ((mask[token / 32] >> (token % 32) & 1u) == 0) row[token] = kImpossible;
    }
    return row;
  }

  FakeEngineConfig settings;
  FakeModel* model;
  KvStore* store = nullptr;  // null: none
  std::unique_ptr<EngineImpl> engine;
};

}  // namespace penstock
