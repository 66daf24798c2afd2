// The whole engine but the model under random operations: 100 random engines with 1,000 operations
// each. RapidCheck shrinks a failing list of operations.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/engine_fixture.h"
#include "engine/letter_grammar.h"
#include "engine/store/block_memory.h"
#include "engine/store/block_store.h"
#include "engine/store/block_tiers.h"

namespace penstock {
namespace {

struct Op {
  enum Kind { kSubmit, kStep, kCancel, kCancelOne, kReset } kind;
  uint32_t value;
};

std::ostream& operator<<(std::ostream& out, const Op& op) {
  return out << "{" << op.kind << ", " << op.value << "}";
}

rc::Gen<Op> any_op() {
  const auto kind = rc::gen::weightedElement<Op::Kind>(
      {{20, Op::kSubmit}, {60, Op::kStep}, {4, Op::kCancel}, {2, Op::kCancelOne}, {1, Op::kReset}});
  return rc::gen::map(rc::gen::pair(kind, rc::gen::arbitrary<uint32_t>()),
                      [](const std::pair<Op::Kind, uint32_t>& p) { return Op{p.first, p.second}; });
}

// A store in memory that loses blocks, fails, throws, or answers late now and then.
class RandomStore final : public BlockStore {
 public:
  RandomStore(BlockImages images, uint64_t seed) : images_(std::move(images)), seed_(seed) {}
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey& key) const override { return find(key) != nullptr; }
  bool touch(const BlockKey& key) const override { return contains(key); }
  Status read(const BlockKey& key, std::span<const TokenId> tokens,
              BlockImage& image) const override {
    if (happens(200)) throw std::bad_alloc();
    const BlockImage* const found = find(key);
    if (found == nullptr) return make_error(ErrorCode::kNotFound, "lost");
    image = *found;
    if (happens(100)) image[image.size() / 2] ^= std::byte{1};
    return images_.holds(image, key, tokens) ? Status()
                                             : make_error(ErrorCode::kCorruptFile, "damaged");
  }
  Status write(const BlockKey& key, const BlockImage& image) override {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(std::tuple(key.group, key.hash.low, key.hash.high), image);
    return {};
  }

 private:
  bool happens(uint64_t one_of) const { return mix_seed(seed_, n_++) % one_of == 0; }
  // Blocks are never removed, so the image stays.
  const BlockImage* find(const BlockKey& key) const {
    if (happens(4000)) usleep(30000);
    if (happens(300)) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(std::tuple(key.group, key.hash.low, key.hash.high));
    return found == blocks_.end() ? nullptr : &found->second;
  }
  const BlockImages images_;
  const uint64_t seed_;
  mutable std::atomic<uint64_t> n_ = 0;
  mutable std::mutex mutex_;
  std::map<std::tuple<int, uint64_t, uint64_t>, BlockImage> blocks_;
};

FakeEngineConfig random_config(uint64_t seed) {
  auto pick = [&, i = uint64_t{0}](int low, int high) mutable {
    return low + static_cast<int>(mix_seed(seed, i++) % (high - low + 1));
  };
  FakeEngineConfig config;
  config.vocab_size = pick(3, 40);
  config.block_size = pick(1, 5);
  config.max_model_len = pick(8, 60);
  const int whole = (config.max_model_len + config.block_size - 1) / config.block_size;
  config.n_blocks = {whole + pick(0, 3 * whole)};
  if (pick(0, 2) == 0) {
    const int window = pick(1, 20);
    config.windows.push_back(window);
    config.n_blocks.push_back((window + 2 * config.block_size + config.block_size - 1) /
                                  config.block_size +
                              pick(0, 2 * whole));
  }
  config.engine.max_num_seqs = pick(1, 8);
  const bool states = pick(0, 3) == 0;
  if (states) {
    config.windows.push_back(kStateWindow);
    config.n_blocks.push_back(pick(4, 12));  // four: of the widest search
    config.engine.state_snapshot_interval = pick(0, 3 * config.block_size);
  }
  config.engine.max_num_batched_tokens = config.engine.max_num_seqs + pick(0, 40);
  config.engine.prefill_chunk = pick(0, 10);
  config.engine.enable_prefix_caching = pick(0, 3) != 0;
  const char* const policies[] = {"continuous", "priority", "continuous", "static", "dynamic"};
  config.engine.policy = policies[pick(0, 4)];
  if (pick(0, 7) == 0) config.engine.kv_layout = "contiguous";
  const int memory_blocks = pick(0, 1) == 0 ? pick(1, 2 * whole) : 0;  // of each group
  config.engine.max_wait_ms = 0;
  if (pick(0, 1) == 0) config.engine.max_tokens_per_batch = pick(1, 100);
  config.engine.priority_ageing_s = 0.001;
  config.exchange_after = pick(0, 2) == 0 ? 1 : 0;
  config.n_stages = pick(0, 1) == 0 ? 1 : pick(2, 4);
  config.device = config.n_stages == 1 && pick(0, 1) == 0;
  if (pick(0, 2) != 0) {
    config.drafts = std::make_shared<DraftScript>();
    config.drafts->max_nodes = pick(1, 20);
    config.spec_length = pick(0, 3) == 0 ? 0 : pick(1, 20);
  }
  config.draft_forced = pick(0, 3) != 0;
  if (config.engine.enable_prefix_caching && config.engine.kv_layout == "paged" &&
      pick(0, 2) == 0) {
    config.make_store = [=](BlockImages images) -> std::shared_ptr<BlockStore> {
      auto far = std::make_shared<RandomStore>(images, seed);
      if (memory_blocks == 0) return far;
      const std::vector<int> n_blocks(static_cast<size_t>(images.n_groups()), 1);
      int64_t bytes = 0;
      for (int g = 0; g < images.n_groups(); ++g) bytes += images.bytes(g) * memory_blocks;
      auto near = BlockMemory::open(bytes, images, n_blocks).value();
      return std::make_shared<BlockTiers>(std::vector<std::shared_ptr<BlockStore>>{near, far});
    };
  }
  return config;
}

FakeEngine random_engine(uint64_t seed) { return FakeEngine(random_config(seed), seed); }

// A grammar that the smallest vocabulary, a and b, can obey.
std::shared_ptr<const TokenMatcher> random_grammar(int choice, int vocab_size) {
  const char* const expressions[] = {"(abba|b)+", "a{3,9}(b[a-z]){1,5}", "(ab){4}[a-z]{0,7}b",
                                     "([ab]a)*", "aabbabab"};
  static std::map<std::pair<int, int>, std::shared_ptr<const TokenMatcher>> made;
  auto& matcher = made[{choice, vocab_size}];
  if (matcher == nullptr) matcher = letter_grammar(expressions[choice], vocab_size);
  return matcher;
}

Request random_request(uint32_t value, const FakeEngineConfig& config) {
  auto pick = [&, i = uint64_t{0}](int low, int high) mutable {
    return low + static_cast<int>(mix_seed(value, i++) % (high - low + 1));
  };
  const int n_prompt = pick(1, config.max_model_len - 1);
  // A few common prefixes that part ways at random places.
  const int family = pick(0, 2), fork = pick(0, n_prompt);
  std::vector<TokenId> prompt;
  for (int i = 0; i < n_prompt; ++i) {
    prompt.push_back(
        static_cast<TokenId>(mix_seed(family + (i >= fork ? value : 0), i) % config.vocab_size));
  }
  Request request = request_of(prompt, pick(1, 40), value);
  request.sampling.n = pick(0, 4) == 0 ? pick(2, 4) : 1;
  request.sampling.ignore_eos = pick(0, 1) == 0;
  request.priority = static_cast<Priority>(pick(0, 3));
  if (pick(0, 5) == 0) request.cache_salt = "tenant";
  request.tenant = std::string(1, static_cast<char>('a' + pick(0, 2)));
  request.read_prefix_cache = pick(0, 9) != 0;
  if (pick(0, 9) == 0) request.sampling.prompt_logprobs = 0;
  const int n_seqs = config.engine.max_num_seqs;
  if (pick(0, 6) == 0 && !request.sampling.prompt_logprobs && config.engine.kv_layout == "paged") {
    request.sampling.use_beam_search = true;
    request.sampling.beam_width = pick(1, std::min(n_seqs, 4));
    request.sampling.n = pick(1, request.sampling.beam_width);
    request.sampling.max_tokens = std::min(request.sampling.max_tokens, 12);
  }
  if (pick(0, 2) == 0) request.matcher = random_grammar(pick(0, 4), config.vocab_size);
  if (pick(0, 4) == 0) request.prefill_wait_seconds = 0.001 * pick(1, 5);
  return request;
}

struct Submitted {
  Request request;
  RequestId id;
  std::shared_ptr<Collector> sink;
  bool cancelled = false;
};

void check_beams(const FakeEngine& fake, const Submitted& s) {
  const std::vector<NaiveBeam> expected = fake.expected_beams(s.request);
  for (int i = 0; i < s.request.sampling.n; ++i) {
    const Collected::Sequence& got = s.sink->result.sequences[i];
    RC_ASSERT(got.n_ends == 1);
    if (s.cancelled && got.finish == FinishReason::kAbort) continue;
    if (static_cast<size_t>(i) < expected.size()) {
      RC_ASSERT(got.tokens == expected[i].tokens);
    } else {
      RC_ASSERT(got.finish == FinishReason::kError);
    }
  }
}

void check_outcome(const FakeEngine& fake, const Submitted& s) {
  if (s.request.sampling.use_beam_search) return check_beams(fake, s);
  for (int i = 0; i < s.request.sampling.n; ++i) {
    const Collected::Sequence& got = s.sink->result.sequences[i];
    RC_ASSERT(got.n_ends == 1);
    std::vector<TokenId> expected = fake.expected(s.request, i);
    if (s.cancelled) {
      RC_ASSERT(got.tokens.size() <= expected.size());
      expected.resize(got.tokens.size());
    }
    RC_ASSERT(got.tokens == expected);
  }
}

bool fits(const FakeEngine& fake, const Request& request) {
  if (!request.sampling.use_beam_search) return true;
  const int max_len =
      std::min(static_cast<int>(request.prompt.size()) + request.sampling.max_tokens,
               fake.settings.max_model_len);
  return fake.engine->scheduler().fits(max_len, request.sampling.beam_width);
}

TEST(RandomOperations, LoseNothingAndChangeNoText) {
  int64_t n_operations = 0, n_requests = 0, n_preemptions = 0, n_hits = 0, n_beams = 0, n_kept = 0,
          n_moved = 0, n_with_states = 0;
  int64_t n_drawn = 0, n_constrained = 0;
  double n_forced = 0;
  double n_found = 0, n_stored = 0;
  int n_rounds = 0;
  const bool ok = rc::check([&](uint64_t seed) {
    const auto ops = *rc::gen::container<std::vector<Op>>(1000, any_op());
    FakeEngine fake = random_engine(seed);
    const auto drafts = fake.settings.drafts;
    RandomDrafts random_drafts(seed, static_cast<int>(mix_seed(seed, 1000) % 101), seed % 3 != 0);
    if (drafts) {
      drafts->propose = [&](const DraftRequest& request, DraftTree& tree) {
        random_drafts.fill(*fake.model, request, tree);
      };
    }
    std::vector<Submitted> all;
    for (const Op& op : ops) {
      ++n_operations;
      switch (op.kind) {
        case Op::kSubmit:
          all.push_back({random_request(op.value, fake.settings), {}, nullptr});
          if (!fits(fake, all.back().request)) {
            all.pop_back();
            break;
          }
          all.back().sink = fake.submit(all.back().request, &all.back().id);
          n_beams += all.back().request.sampling.use_beam_search;
          n_constrained += all.back().request.matcher != nullptr;
          break;
        case Op::kStep: fake.engine->step(); break;
        case Op::kCancel:
        case Op::kCancelOne: {
          if (all.empty()) break;
          Submitted& one = all[all.size() - 1 - op.value % std::min<size_t>(all.size(), 12)];
          one.cancelled = true;
          const int index = op.kind == Op::kCancel
                                ? -1
                                : static_cast<int>(op.value / 16 % one.request.sampling.n);
          fake.engine->cancel(one.id, index, FinishReason::kAbort);
          break;
        }
        case Op::kReset: fake.engine->reset_prefix_cache(); break;
      }
      fake.engine->scheduler().check_invariants();
    }
    int steps = 0;  // those without a step included, in which blocks are loaded
    while (fake.engine->step()) RC_ASSERT(++steps < 1000000);
    fake.engine->scheduler().check_invariants();
    for (int g = 0; g < fake.engine->scheduler().n_groups(); ++g) {
      RC_ASSERT(fake.engine->scheduler().allocator(g).n_referenced() == 0);
    }
    for (const Submitted& s : all) check_outcome(fake, s);
    n_requests += static_cast<int64_t>(all.size());
    if (fake.settings.windows.back() == kStateWindow)
      n_with_states += static_cast<int64_t>(all.size());
    n_preemptions += static_cast<int64_t>(fake.engine->metrics().num_preemptions.value);
    n_hits += fake.engine->scheduler().n_hit();
    n_drawn += fake.model->n_drawn();
    n_found += fake.engine->metrics().kv_store_queries.value -
               fake.engine->metrics().kv_store_misses.value;  // read, if that is sooner
    n_stored += fake.engine->metrics().kv_store_written_blocks.value;
    n_forced += fake.engine->metrics().grammar_forced_tokens.value;
    ++n_rounds;
    if (!drafts) return;
    RC_ASSERT(drafts->last_size.empty());  // whatever has ended was forgotten
    const Metrics metrics = fake.engine->metrics();
    const double n_kept_of_drafter =
        metrics.spec_decode_num_accepted_tokens.value - metrics.grammar_forced_tokens.value;
    RC_ASSERT(n_kept_of_drafter <= static_cast<double>(drafts->n_proposed));
    n_kept += static_cast<int64_t>(n_kept_of_drafter);
    n_moved += fake.model->n_moved();
  });
  EXPECT_TRUE(ok);
  EXPECT_GE(n_operations, int64_t{1000} * n_rounds);
  EXPECT_GE(n_rounds, 30);
  if (n_rounds < 100) return;  // RC_PARAMS asks for fewer, of which some miss a path
  // The test means nothing unless it reached the paths it is about.
  EXPECT_GT(n_requests, 5000);
  EXPECT_GT(n_preemptions, 100);
  EXPECT_GT(n_with_states, 1000);
  EXPECT_GT(n_hits, 1000);
  EXPECT_GT(n_kept, 2000);
  EXPECT_GT(n_moved, 0);  // 36 to some thousands
  EXPECT_GT(n_beams, 100);
  EXPECT_GT(n_drawn, 10000);
  EXPECT_GT(n_found, 0);
  EXPECT_GT(n_stored, 100);
  EXPECT_GT(n_constrained, 1000);
  EXPECT_GT(n_forced, 1000);
  RecordProperty("preemptions", static_cast<int>(n_preemptions));
}

}  // namespace
}  // namespace penstock
