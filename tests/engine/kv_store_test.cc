// A store beside the cache changes no bit of a text: on, off, after a restart, after SIGKILL, with
// blocks evicted at every step, with damaged files, and shared by two processes. Batch-invariant
// mode, tiny random checkpoints of every kind of cache.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/collector.h"
#include "engine/engine_fixture.h"
#include "engine/hung_store.h"
#include "formats/temp_dir.h"
#include "kernels/philox.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

struct Told {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const Told&) const = default;
};

Told told_to(const Collector& sink) {
  const Collected::Sequence& sequence = sink.result.sequences.at(0);
  EXPECT_FALSE(sequence.error.has_value()) << sequence.error->message;
  return {sequence.tokens, sequence.logprobs};
}

std::vector<Told> ask(Engine& engine, const std::vector<Request>& requests, bool at_once = false) {
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) {
    sinks.push_back(std::make_shared<Collector>());
    EXPECT_TRUE(engine.submit(request, sinks.back()));
    while (!at_once && engine.step()) {
    }
  }
  while (engine.step()) {
  }
  std::vector<Told> texts;
  for (const auto& sink : sinks) texts.push_back(told_to(*sink));
  return texts;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  return files;
}

// "MODEL" or "MODEL/CACHE TYPE".
class KvStoreExactness : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto engine = open({}, false);
    block_bytes_ = engine->info().kv_bytes / engine->info().n_blocks;
    const int vocab_size = engine->info().vocab_size;
    for (int i = 0; i < 4; ++i) {
      // two families with a common prefix
      std::vector<TokenId> prompt = prompt_of(40, i % 2, vocab_size);
      for (int j = 0; j < 5 + 9 * i; ++j) prompt.push_back((i * 11 + j * 5) % vocab_size);
      Request request = request_of(prompt, 12 + 3 * i, 100 + i);
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 2;
      request.sampling.temperature = i == 3 ? 0.0f : 10.0f;
      requests_.push_back(request);
    }
    expected_ = ask(*engine, requests_);
  }
  std::unique_ptr<Engine> open(EngineConfig config = {}, bool with_store = true) const {
    const std::string_view name = GetParam();
    const size_t slash = name.find('/');
    config.model = (tests_dir() / "golden" / "models" / name.substr(0, slash)).string();
    if (slash != std::string::npos) config.kv_cache_dtype = name.substr(slash + 1);
    config.batch_invariant = true;
    config.threads = 1;
    if (config.max_num_seqs == 0) config.max_num_seqs = 4;
    config.state_snapshot_interval = 16;
    if (with_store) config.kv_store = dir_.path().string() + ":64M";
    auto engine = Engine::open(config);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    return std::move(engine).value();
  }
  // A cache in which few blocks survive from one request to the next.
  EngineConfig tight() const {
    EngineConfig config;
    config.max_model_len = static_cast<int>(requests_.back().prompt.size()) + 24;
    config.kv_cache_memory = block_bytes_ * (config.max_model_len / 16 + 4);
    return config;
  }
  const TempDir dir_;
  std::vector<Request> requests_;
  std::vector<Told> expected_;
  int64_t block_bytes_ = 0;
};

TEST_P(KvStoreExactness, RestartsGoOnFromTheStore) {
  EXPECT_EQ(ask(*open(), requests_), expected_);
  const auto again = open();
  EXPECT_EQ(ask(*again, requests_), expected_);
  const Metrics metrics = again->metrics();
  EXPECT_GT(metrics.kv_store_read_blocks.value, 0);
  EXPECT_EQ(metrics.kv_store_damaged_blocks.value, 0);
  EXPECT_EQ(metrics.kv_store_dropped_blocks.value, 0);
  EXPECT_EQ(ask(*open(), requests_, true), expected_) << "batched";
  EngineConfig drafts;
  drafts.spec = "ngram";
  drafts.spec_length = "3";
  const auto speculating = open(drafts);
  EXPECT_EQ(ask(*speculating, requests_), expected_);
  EXPECT_GT(speculating->metrics().kv_store_read_blocks.value, 0);
}

TEST_P(KvStoreExactness, PrefillAndDecodeApart) {
  EngineConfig config;
  config.role = "prefill";
  const auto prefill = open(config);
  config.role = "decode";
  const auto decode = open(config);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const int n_prompt = static_cast<int>(requests_[i].prompt.size());
    const auto prompt = std::make_shared<Collector>(), text = std::make_shared<Collector>();
    ASSERT_TRUE(prefill->submit(requests_[i], prompt));
    while (prefill->step()) {
    }
    EXPECT_TRUE(told_to(*prompt).tokens.empty());
    const int n_stored = prompt->result.sequences.at(0).stats.prefix.stored_tokens;
    EXPECT_EQ(n_stored, (n_prompt - 1) / 16 * 16);
    ASSERT_TRUE(decode->submit(requests_[i], text));
    while (decode->step()) {
    }
    EXPECT_EQ(told_to(*text), expected_[i]) << i;
    // the first one is read: the engine has not measured yet that such models compute in no time
    EXPECT_GE(text->result.sequences.at(0).stats.cached_tokens, i == 0 ? n_stored : 0);
  }
}

// Both engines step by turns, so that blocks are read while they are made.
TEST_P(KvStoreExactness, ReadWhileTheyAreMade) {
  EngineConfig config;
  config.max_num_batched_tokens = 16;
  config.role = "prefill";
  const auto prefill = open(config);
  config.role = "decode";
  const auto decode = open(config);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const auto prompt = std::make_shared<Collector>(), text = std::make_shared<Collector>();
    ASSERT_TRUE(prefill->submit(requests_[i], prompt));
    Request request = requests_[i];
    request.prefill_wait_seconds = 5;
    ASSERT_TRUE(decode->submit(request, text));
    for (bool one = true, other = true; one || other;) {
      one = one && prefill->step();
      other = other && decode->step();
    }
    EXPECT_EQ(told_to(*text), expected_[i]) << i;
  }
  const Metrics metrics = decode->metrics();
  EXPECT_GE(metrics.kv_store_followed.value, 1);
  EXPECT_GT(metrics.kv_store_read_blocks.value, 0);
  EXPECT_EQ(metrics.kv_store_damaged_blocks.value, 0);
}

TEST_P(KvStoreExactness, EvictedBlocksComeBack) {
  {
    const auto engine = open(tight());
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(ask(*engine, requests_), expected_) << round;
      EXPECT_EQ(ask(*engine, requests_, true), expected_) << round;
    }
  }
  // The first prompt of an engine is read: it has not measured yet that such models compute in no
  // time.
  const auto again = open(tight());
  EXPECT_EQ(ask(*again, requests_), expected_);
  EXPECT_GT(again->metrics().kv_store_read_blocks.value, 0);
}

TEST_P(KvStoreExactness, DamageIsAMiss) {
  EXPECT_EQ(ask(*open(), requests_), expected_);
  double n_damaged = 0;
  for (uint64_t round = 0; round < 6; ++round) {
    uint64_t n = 0;
    for (const fs::path& file : files_in(dir_.path())) {
      const uint64_t random = mix_seed(round, n++);
      const auto size = static_cast<int64_t>(fs::file_size(file));
      const auto at = static_cast<int64_t>(random / 8 % static_cast<uint64_t>(size));
      if (random % 4 == 1) fs::resize_file(file, static_cast<uintmax_t>(at));
      if (random % 4 != 2) continue;
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(at);
      const char flipped = static_cast<char>(bytes.get() ^ (1 << random % 7));
      bytes.seekp(at);
      bytes.put(flipped);
    }
    const auto engine = open();
    EXPECT_EQ(ask(*engine, requests_, round % 2 == 0), expected_) << round;
    n_damaged += engine->metrics().kv_store_damaged_blocks.value;
  }
  EXPECT_GT(n_damaged, 0);
}

// A process that computes the requests over and over, until it is killed.
class Other {
 public:
  explicit Other(const std::function<void()>& round) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) round();
  }
  ~Other() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

TEST_P(KvStoreExactness, AKilledProcessLeavesNothingWrong) {
  const auto work = [&] { ask(*open(tight()), requests_, true); };
  for (int round = 0; round < 5; ++round) {
    {
      const Other other(work);
      usleep(static_cast<useconds_t>(20000 + mix_seed(round, 0) % 60000));
    }
    EXPECT_EQ(ask(*open(), requests_), expected_) << round;
    // the next child begins with a part of them
    for (const fs::path& file : files_in(dir_.path())) {
      if (mix_seed(round, std::hash<std::string>()(file.string())) % 2 == 0) fs::remove(file);
    }
  }
}

TEST_P(KvStoreExactness, TwoProcessesShareAFolder) {
  double n_read = 0;
  const Other other([&] { ask(*open(tight()), requests_, true); });
  for (int round = 0; round < 3; ++round) {
    const auto engine = open(tight());
    EXPECT_EQ(ask(*engine, requests_, true), expected_) << round;
    EXPECT_EQ(ask(*engine, requests_), expected_) << round;
    n_read += engine->metrics().kv_store_read_blocks.value;
  }
  EXPECT_GT(n_read, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, KvStoreExactness,
                         ::testing::Values("llama3", "llama3/int8", "gemma3", "gemma3/int8",
                                           "gemma3/int4", "gpt_oss", "deepseek_v3",
                                           "deepseek_v3/int4", "deepseek_v32", "gemma4",
                                           "qwen3_next", "qwen3_next/int8", "mamba2",
                                           "kimi_linear"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(KvStoreEngine, OtherSettingsAndModelsShareNothing) {
  const TempDir dir;
  EngineConfig config;
  config.model = (tests_dir() / "golden" / "models" / "llama3").string();
  config.threads = 1;
  config.kv_store = dir.path().string();
  const auto n_cached = [&](const EngineConfig& config) {
    const auto engine = Engine::open(config).value();
    ask(*engine, {request_of(prompt_of(70, 1, 60), 4)});
    return engine->metrics().prompt_tokens_cached.value;
  };
  EXPECT_EQ(n_cached(config), 0);
  EXPECT_EQ(n_cached(config), 64);
  EngineConfig other = config;
  other.kv_cache_dtype = "int8";
  EXPECT_EQ(n_cached(other), 0);
  other = config;
  other.batch_invariant = true;
  EXPECT_EQ(n_cached(other), 0);
  other = config;
  other.quantize = "int8";
  EXPECT_EQ(n_cached(other), 0);
  other.quantize = "int4";
  EXPECT_EQ(n_cached(other), 0);
  // a file that was written anew is another model, whatever is in it
  fs::copy(config.model, dir / "copy", fs::copy_options::recursive);
  other = config;
  other.model = (dir / "copy").string();
  EXPECT_EQ(n_cached(other), 0);
  EXPECT_EQ(n_cached(config), 64);
}

TEST(KvStoreEngine, TenantsAndAdaptersShareNothing) {
  const TempDir dir;
  const auto answer = [&](const std::string& salt, const std::string& adapter, bool store) {
    EngineConfig config;
    config.model = (tests_dir() / "golden" / "models" / "llama2").string();
    config.threads = 1;
    config.batch_invariant = true;
    if (store) config.kv_store = dir.path().string();
    const auto engine = Engine::open(config).value();
    Request request = request_of(prompt_of(70, 1, 60), 8);
    request.cache_salt = salt;
    request.sampling.temperature = 2;
    if (!adapter.empty())
      request.adapter =
          engine->open_adapter((tests_dir() / "golden" / "lora" / adapter).string()).value();
    const Told told = ask(*engine, {request})[0];
    return std::pair(told, engine->metrics().prompt_tokens_cached.value);
  };
  const std::pair<const char*, const char*> kinds[] = {{"", ""}, {"tenant", ""}, {"", "llama2"}};
  for (const auto& [salt, adapter] : kinds) {
    const Told expected = answer(salt, adapter, false).first;
    EXPECT_EQ(answer(salt, adapter, true), std::pair(expected, 0.0)) << salt << adapter;
    EXPECT_EQ(answer(salt, adapter, true), std::pair(expected, 64.0)) << salt << adapter;
  }
}

TEST(KvStoreEngine, NeedsAPrefixCache) {
  EngineConfig config;
  config.kv_store = "/tmp/penstock";
  config.enable_prefix_caching = false;
  EXPECT_EQ(resolve_preset(config).error().code, ErrorCode::kInvalidArgument);
  config.enable_prefix_caching = true;
  config.kv_store = "/tmp/penstock:1X";
  EXPECT_EQ(resolve_preset(config).error().code, ErrorCode::kInvalidArgument);
}

// --- Over the fake model

struct Stored {
  explicit Stored(FakeEngineConfig config = {}) : config_(std::move(config)) {
    config_.store.path = dir_.path(), config_.store.max_bytes = int64_t{1} << 30;
  }
  // Returns how many tokens of the prompt a new engine need not compute.
  int cached(const Request& request) const {
    FakeEngine fake(config_, 1);
    const auto sink = fake.submit(request);
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request));
    return sink->result.sequences[0].stats.cached_tokens;
  }
  const TempDir dir_;
  FakeEngineConfig config_;
};

TEST(StoredBlocks, WithWindowsAndStates) {
  FakeEngineConfig config;
  config.n_blocks = {64, 30, 20};
  config.windows = {0, 10, kStateWindow};
  config.engine.max_num_batched_tokens = 200;
  const Stored stored(config);
  Request request = request_of(prompt_of(101), 10);
  EXPECT_EQ(stored.cached(request), 0);
  EXPECT_EQ(stored.cached(request), 100);
  request.read_prefix_cache = false;
  EXPECT_EQ(stored.cached(request), 0);
}

// The completion belongs to the next turn's prompt.
TEST(StoredBlocks, TheNextTurnGoesOnFromTheLastOne) {
  const Stored stored;
  Request request = request_of(prompt_of(41), 40);
  request.sampling.ignore_eos = true;
  EXPECT_EQ(stored.cached(request), 0);
  FakeEngine fake(stored.config_, 1);
  const std::vector<TokenId> text = fake.expected(request);
  request.prompt.insert(request.prompt.end(), text.begin(), text.end());
  EXPECT_EQ(stored.cached(request), 80);
}

// An engine whose disk does not answer, and that ends although it does not.
struct HungDisk {
  explicit HungDisk(int calls, int n_blocks = 64) {
    config.n_blocks = {n_blocks};
    config.longest_answer = std::chrono::milliseconds(20);
    config.make_store = [gate = gate, calls](BlockImages images) {
      return std::make_shared<HungStore>(std::move(images), gate, calls);
    };
  }
  ~HungDisk() { gate->open(); }
  const std::shared_ptr<Gate> gate = std::make_shared<Gate>();
  FakeEngineConfig config;
};

TEST(StoredBlocks, AHungDiskIsWaitedForOnceAndBriefly) {
  for (const int calls : {HungStore::kContains, HungStore::kRead, HungStore::kAll}) {
    const HungDisk disk(calls);
    FakeEngine fake(disk.config);
    const Request request = request_of(prompt_of(101), 4), other = request_of(prompt_of(3, 5), 30);
    const auto waits = fake.submit(request), runs = fake.submit(other);
    // others go on meanwhile: a prompt of less than a block has nothing to load
    while (runs->n_finished() == 0) ASSERT_TRUE(fake.engine->step());
    EXPECT_EQ(waits->n_finished(), 0);
    int n_steps = 0;
    while (fake.engine->step()) ++n_steps;
    EXPECT_LT(n_steps, 20000) << "a step rests while there is nothing to do";
    EXPECT_EQ(waits->result.sequences[0].tokens, fake.expected(request));
    EXPECT_EQ(runs->result.sequences[0].tokens, fake.expected(other));
    EXPECT_EQ(fake.engine->metrics().kv_store_late.value, 1);
    const Request next = request_of(prompt_of(77, 2), 4);
    const auto sink = fake.submit(next);
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(next));
    EXPECT_EQ(fake.engine->metrics().kv_store_queries.value, 1) << "nobody waits for it any more";
  }
}

// The engine's thread sleeps until the time limit of the load, or the deadline of the request.
TEST(StoredBlocks, AHungDiskKeepsNoThreadAsleep) {
  const HungDisk disk(HungStore::kAll);
  FakeEngine fake(disk.config);
  fake.engine->start();
  const auto ask = [&](const Request& request) {
    const auto sink = fake.submit(request);
    while (sink->n_finished() == 0) usleep(1000);
    return sink;
  };
  Request request = request_of(prompt_of(101), 4);
  request.deadline = Clock::now() + std::chrono::milliseconds(30);
  const auto late = ask(request);
  const auto& error = late->result.sequences[0].error;
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(fake.engine->metrics().kv_store_late.value, 0) << "the load's own limit is later";
  for (int i = 1; i < 4; ++i) {
    request = request_of(prompt_of(101, i), 4);
    EXPECT_EQ(ask(request)->result.sequences[0].tokens, fake.expected(request));
  }
  fake.engine->stop();
  EXPECT_EQ(fake.engine->metrics().kv_store_late.value, 1);
  EXPECT_EQ(fake.engine->metrics().kv_store_queries.value, 2) << "of the request that ended, too";
}

// Blocks that are evicted, and those that pend when the engine ends, are dropped.
TEST(StoredBlocks, ADiskThatTakesNoBlocksKeepsNobodyWaiting) {
  const HungDisk disk(HungStore::kWrite, 60);
  FakeEngine fake(disk.config);
  fake.engine->start();
  for (int i = 0; i < 8; ++i) {
    const Request request = request_of(prompt_of(101, i), 4);
    const auto sink = fake.submit(request);
    while (sink->n_finished() == 0) usleep(1000);
    EXPECT_EQ(sink->result.sequences[0].tokens, fake.expected(request));
  }
  EXPECT_FALSE(fake.store->writer().flush(std::chrono::hours(1)));
}

// A disk that writes a block in 50 ms.
class SlowStore final : public BlockStore {
 public:
  explicit SlowStore(BlockImages images) : images_(std::move(images)) {}
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey&) const override { return false; }
  bool touch(const BlockKey&) const override { return false; }
  Status read(const BlockKey&, std::span<const TokenId>, BlockImage&) const override {
    return make_error(ErrorCode::kNotFound, "none");
  }
  Status write(const BlockKey&, const BlockImage&) override {
    usleep(50000);
    return {};
  }

 private:
  const BlockImages images_;
};

TEST(StoredBlocks, ASlowDiskIsNotWaitedForBeyondTheEndsTime) {
  FakeEngineConfig config;
  config.n_blocks = {400};
  config.make_store = [](BlockImages images) {
    return std::make_shared<SlowStore>(std::move(images));
  };
  FakeEngine fake(config);
  for (int i = 0; i < 8; ++i) fake.submit(request_of(prompt_of(101, i), 4));
  fake.run();  // some ten seconds of writing
  const auto begin = Clock::now();
  fake.engine->end_by(begin + std::chrono::milliseconds(200));
  fake.engine.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(3));
}

// A sequence that waits is loaded for once, one that runs is not.
TEST(StoredBlocks, ASequenceHasOneLoad) {
  const HungDisk disk(HungStore::kAll);
  FakeEngine fake;
  const std::unique_ptr<KvStore> store = FakeEngine::open_store(disk.config, *fake.model, 0);
  Scheduler& scheduler = fake.engine->scheduler();
  MetricsRecorder metrics;
  StoredBlocks stored(*store, scheduler, *fake.model, metrics);
  Sequence sequence;
  sequence.id = SeqId{1};
  sequence.tokens = prompt_of(30);
  sequence.n_prompt = 30;
  sequence.max_len = 40;
  stored.begin_load(sequence, 0);
  EXPECT_EQ(stored.n_loads(), 0) << "it does not wait yet";
  scheduler.add(sequence);
  Plan plan;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) stored.begin_load(sequence, 0);
    EXPECT_EQ(stored.n_loads(), 1);
    EXPECT_TRUE(sequence.loading);
    EXPECT_GT(stored.next_take(), Clock::now());
    EXPECT_LT(stored.next_take(), Clock::now() + std::chrono::seconds(4));
    stored.take_loaded(false);
    scheduler.next(0, 100, plan);
    EXPECT_TRUE(plan.items.empty());
    EXPECT_EQ(stored.n_loads(), 1);
    stored.end_load(sequence);
    stored.end_load(sequence);
    EXPECT_EQ(stored.n_loads(), 0);
    EXPECT_FALSE(sequence.loading);
    EXPECT_EQ(stored.next_take(), Clock::time_point::max());
  }
  scheduler.next(0, 100, plan);
  ASSERT_EQ(sequence.state, SeqState::kRunning);
  stored.begin_load(sequence, 0);
  EXPECT_EQ(stored.n_loads(), 0);
  scheduler.finish(sequence);
}

TEST(StoredBlocks, WhatIsNoFileIsComputed) {
  const Stored stored;
  const Request slow = request_of(prompt_of(101), 10);
  EXPECT_EQ(stored.cached(slow), 0);
  const fs::path file = files_in(stored.dir_.path())[0];
  fs::remove(file);
  fs::create_directory(file);
  FakeEngine fake(stored.config_, 1);
  const Request other = request_of(prompt_of(9, 3), 10);
  const auto a = fake.submit(slow), b = fake.submit(other);
  fake.run();
  EXPECT_EQ(a->result.sequences[0].tokens, fake.expected(slow));
  EXPECT_EQ(b->result.sequences[0].tokens, fake.expected(other));
}

TEST(StoredBlocks, ARequestThatEndsWhileItIsLoadedLeavesNothing) {
  const Stored stored;
  const Request request = request_of(prompt_of(101), 10);
  EXPECT_EQ(stored.cached(request), 0);
  for (int steps = 0; steps < 4; ++steps) {
    FakeEngine fake(stored.config_, 1);
    RequestId id{};
    const auto sink = fake.submit(request, &id);
    for (int i = 0; i < steps; ++i) fake.engine->step();
    fake.engine->cancel(id, -1, FinishReason::kAbort);
    const auto next = fake.submit(request);
    fake.run();
    EXPECT_EQ(sink->result.sequences[0].n_ends, 1);
    EXPECT_EQ(next->result.sequences[0].tokens, fake.expected(request));
  }
}

// The prompt is larger than what the cache has left for it.
TEST(StoredBlocks, LoadsWhatFits) {
  Stored stored;
  const Request request = request_of(prompt_of(101), 4);
  EXPECT_EQ(stored.cached(request), 0);
  stored.config_.n_blocks = {27};
  stored.config_.max_model_len = 106;
  EXPECT_EQ(stored.cached(request), 100);
}

// The prompt is asked for again while memory has it; later prompts displace the others.
TEST(StoredBlocks, WhatMemoryAnswersStaysInASmallStore) {
  Stored stored;
  stored.config_.store.max_bytes = 100 * 4096;
  stored.config_.n_blocks = {400};
  const Request often = request_of(prompt_of(101), 4);
  {
    FakeEngine fake(stored.config_, 1);
    const auto ask = [&](const Request& request) {
      const auto sink = fake.submit(request);
      fake.run();
      EXPECT_TRUE(fake.store->writer().flush(std::chrono::seconds(60)));
      return sink->result.sequences[0].stats.cached_tokens;
    };
    EXPECT_EQ(ask(often), 0);
    for (int i = 2; i < 4; ++i) ask(request_of(prompt_of(101, i), 4));
    for (const fs::path& file : files_in(stored.dir_.path()))
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    EXPECT_EQ(ask(often), 100);
    for (int i = 4; i < 6; ++i) ask(request_of(prompt_of(101, i), 4));
  }
  EXPECT_LE(files_in(stored.dir_.path()).size(), 100u);
  EXPECT_EQ(stored.cached(often), 100);
}

// Memory is too small for all prompts: a prompt may read what another evicted in the first round, by
// the order in which threads finish; in the second, memory is empty and the store is not.
TEST(StoredBlocks, OnThreadsOfTheirOwnAndInAnyOrder) {
  const Stored stored;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(request_of(prompt_of(60 + 7 * i, i % 3), 10, i));
  for (int round = 0; round < 2; ++round) {
    FakeEngine fake(stored.config_, 1);
    fake.engine->start();
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const Request& request : requests) sinks.push_back(fake.submit(request));
    for (int i = 0; i < 60000; ++i) {
      if (std::ranges::all_of(sinks, [](const auto& sink) { return sink->n_finished() == 1; }))
        break;
      usleep(1000);
    }
    fake.engine->stop();
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(sinks[i]->result.sequences[0].tokens, fake.expected(requests[i])) << i;
    if (round > 0) {
      EXPECT_GT(fake.engine->metrics().kv_store_read_blocks.value, 0);
    }
  }
}

}  // namespace
}  // namespace penstock
