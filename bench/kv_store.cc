// The store of cached blocks: the first token of a prompt after a restart, from the disk beside
// computed, and what a store costs that has nothing of a prompt. Random weights, greedy.
//
//   bench_kv_store restart FOLDER [tokens = 4000] [rounds = 5] [shape = qwen2.5-0.5b] [type = q8_0]
//       every round: an engine computes a new prompt; another one, whose memory is empty, is asked
//       the same, first with the files read from the device, then from the system's page cache. Each
//       has answered a short prompt before, as weights are packed in the first steps.
//       "plain" is the time of reading the same files and doing nothing with them. FOLDER may be a
//       redis:// URL instead, which is asked once.
//   bench_kv_store misses FOLDER [tokens = 1000] [rounds = 15] [shape] [type]
//       every round: a new prompt and 32 tokens behind it, by an engine without a store and by one
//       with, in turn; the median of the rounds' ratios.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/open/open.h"
#include "engine/store/redis_connection.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using BenchClock = std::chrono::steady_clock;

double milliseconds_since(BenchClock::time_point start) {
  return std::chrono::duration<double, std::milli>(BenchClock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Counts : public EventSink {
 public:
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events)
      if (event.stats != nullptr) cached = event.stats->cached_tokens;
  }
  int cached = 0;
};

// Returns the milliseconds of a request, and sets `cached` to its prompt tokens that were.
double ask(Engine& engine, std::vector<TokenId> prompt, int n_generated, int& cached) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = n_generated;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  const auto sink = std::make_shared<Counts>();
  const auto start = BenchClock::now();
  if (!engine.submit(std::move(request), sink)) std::exit(1);
  while (engine.step()) {
  }
  const double took = milliseconds_since(start);
  cached = sink->cached;
  return took;
}

struct Settings {
  std::string place;  // a folder, or a URL
  bool is_folder() const { return !place.starts_with(kRedisScheme); }
  int n_tokens, n_rounds;
  std::string shape, type;

  std::unique_ptr<Engine> open(bool with_store) const {
    EngineConfig config;
    config.max_model_len = n_tokens + 64;
    config.kv_cache_memory = int64_t{512} << 20;
    config.max_num_seqs = 4;
    if (with_store) config.kv_store = place + (is_folder() ? ":8G" : "");
    auto source = make_synthetic_source(shape, type);
    if (!source) return fail(source.error());
    auto engine = open_engine(std::move(*source), config);
    if (!engine) return fail(engine.error());
    int cached = 0;
    ask(**engine, {1, 2, 3}, 1, cached);
    return std::move(*engine);
  }
  static std::unique_ptr<Engine> fail(const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    std::exit(1);
  }
  std::vector<TokenId> prompt(uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<TokenId> tokens(static_cast<size_t>(n_tokens));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 30000);
    return tokens;
  }
};

// Reads all files; from the device when they are dropped from memory before. Returns milliseconds.
double read_files(const fs::path& folder, bool drop, int64_t& bytes) {
  std::vector<int> files;
  bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.push_back(::open(entry.path().c_str(), O_RDONLY));
    if (!drop) continue;
    fdatasync(files.back());
    posix_fadvise(files.back(), 0, 0, POSIX_FADV_DONTNEED);
  }
  std::vector<char> buffer(1 << 20);
  const auto start = BenchClock::now();
  for (const int file : files) {
    for (ssize_t n = 0; (n = read(file, buffer.data(), buffer.size())) > 0;) bytes += n;
  }
  const double took = milliseconds_since(start);
  for (const int file : files) {
    if (drop) posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  return took;
}

void restarts(const Settings& settings) {
  std::vector<double> ratios;
  for (int round = 0; round < settings.n_rounds; ++round) {
    if (settings.is_folder()) fs::remove_all(fs::path(settings.place) / "penstock-kv");
    const std::vector<TokenId> prompt = settings.prompt(round + 1);
    int cached = 0;
    int64_t bytes = 0;
    double computed = 0;
    {
      const auto engine = settings.open(true);
      computed = ask(*engine, prompt, 1, cached);
    }
    if (!settings.is_folder()) {
      const double read = ask(*settings.open(true), prompt, 1, cached);
      ratios.push_back(computed / read);
      std::printf("computed %8.1f ms   from Redis %7.1f ms   %d tokens   %.1f times sooner\n",
                  computed, read, cached, ratios.back());
      continue;
    }
    const double plain = read_files(settings.place, true, bytes);
    const double device = ask(*settings.open(true), prompt, 1, cached);
    const double memory = ask(*settings.open(true), prompt, 1, cached);
    ratios.push_back(computed / device);
    std::printf(
        "computed %8.1f ms   from the device %7.1f ms (plain %6.1f)   from the page cache "
        "%6.1f ms   %d tokens, %.1f MiB   %.1f times sooner\n",
        computed, device, plain, memory, cached, static_cast<double>(bytes) / (1 << 20),
        ratios.back());
    std::fflush(stdout);
  }
  std::printf("median: %.1f times sooner\n", median(ratios));
}

void misses(const Settings& settings) {
  const auto without = settings.open(false), with = settings.open(true);
  std::vector<double> ratios;
  int cached = 0;
  for (int round = -1; round < settings.n_rounds; ++round) {
    const std::vector<TokenId> prompt = settings.prompt(static_cast<uint32_t>(round + 1000));
    double took[2];
    for (int i = 0; i < 2; ++i) {
      const bool store = (round + i) % 2 != 0;
      took[store] = ask(store ? *with : *without, prompt, 32, cached);
    }
    if (round < 0) continue;  // weights are packed
    ratios.push_back(took[1] / took[0]);
    std::printf("without %8.1f ms   with %8.1f ms   %.4f\n", took[0], took[1], ratios.back());
    std::fflush(stdout);
  }
  std::printf("median of the ratios: %.4f\n", median(ratios));
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  if (what != "restart" && what != "misses") {
    std::fprintf(stderr,
                 "usage: bench_kv_store restart|misses FOLDER [tokens] [rounds] [shape] [type]\n");
    return 2;
  }
  const bool restart = what == "restart";
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const penstock::Settings settings{
      argv[2], number(3, restart ? 4000 : 1000), number(4, restart ? 5 : 15),
      argc > 5 ? argv[5] : "qwen2.5-0.5b", argc > 6 ? argv[6] : "q8_0"};
  if (settings.is_folder()) std::filesystem::create_directories(settings.place);
  restart ? penstock::restarts(settings) : penstock::misses(settings);
}
