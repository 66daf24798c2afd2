// The cache of replies by itself: how long it takes to keep one and to look for one by its meaning,
// and the memory of all.
//
//   bench_reply_cache [entries = 1000000] [dimensions = 256] [wait]
//
// wait: between keeping, which takes minutes for a million, and looking: for a line on the standard
// input. Vectors are drawn around 1,000 centres, as questions gather around subjects; half of what
// is looked for is near something that is kept.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "server/replies/cache/reply_cache.h"

namespace penstock {
namespace {

using BenchClock = std::chrono::steady_clock;

double milliseconds_since(BenchClock::time_point start) {
  return std::chrono::duration<double, std::milli>(BenchClock::now() - start).count();
}

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  long pages = 0, resident = 0;
  in >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

class Vectors {
 public:
  explicit Vectors(size_t dimensions) : dimensions_(dimensions) {
    for (int i = 0; i < 1000; ++i) centres_.push_back(drawn(std::vector<float>(dimensions, 0), 1));
  }
  std::vector<float> next() { return drawn(centres_[random_() % centres_.size()], 0.8f); }
  std::vector<float> near(const std::vector<float>& one) { return drawn(one, 0.1f); }

 private:
  std::vector<float> drawn(std::vector<float> around, float width) {
    float square = 0;
    const float scale = width / std::sqrt(static_cast<float>(dimensions_));
    for (float& x : around) {
      x += scale * normal_(random_);
      square += x * x;
    }
    for (float& x : around) x /= std::sqrt(square);
    return around;
  }
  const size_t dimensions_;
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  std::vector<std::vector<float>> centres_;
};

void print_times(const char* what, std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%-28s p50 %7.3f ms   p99 %7.3f ms   most %7.3f ms\n", what, at(0.5), at(0.99),
              at(1));
}

int run(size_t n, size_t dimensions, bool wait) {
  ReplyCacheConfig config;
  config.bytes = int64_t{1} << 40;
  config.entries = static_cast<int64_t>(n) + 1;
  config.threshold = 0.9;
  auto opened = ReplyCache::open(config, {});
  if (!opened) return 1;
  ReplyCache& cache = **opened;
  Vectors vectors(dimensions);
  const double before = resident_mib();
  std::vector<std::vector<float>> some;
  std::vector<double> puts;
  const BenchClock::time_point begin = BenchClock::now();
  for (size_t i = 0; i < n; ++i) {
    CachedReply reply;
    reply.key = std::to_string(i);
    reply.scope = "scope";
    reply.model = "model";
    reply.question = "What is the plan?";
    reply.record = std::string(100, 'x');
    std::vector<float> meaning = vectors.next();
    if (i % std::max<size_t>(n / 2000, 1) == 0) some.push_back(meaning);
    const BenchClock::time_point start = BenchClock::now();
    cache.put(std::move(reply), std::move(meaning));
    if (i + 5000 > n) puts.push_back(milliseconds_since(start));
  }
  std::printf(
      "%zu entries of %zu numbers in %.0f s: %.0f MiB, %.0f bytes each; counted as %.0f MiB\n", n,
      dimensions, milliseconds_since(begin) / 1000, resident_mib() - before,
      (resident_mib() - before) * (1 << 20) / static_cast<double>(n),
      static_cast<double>(cache.counts().bytes) / (1 << 20));
  std::fflush(stdout);
  if (wait) std::getchar();
  std::vector<double> near, far, exact;
  size_t n_found = 0;
  for (const auto& one : some) {
    const auto asked = vectors.near(one), other = vectors.next();
    BenchClock::time_point start = BenchClock::now();
    n_found +=
        cache.find_near("scope", asked, "What is the plan?", INT64_MAX).reply != nullptr ? 1 : 0;
    near.push_back(milliseconds_since(start));
    start = BenchClock::now();
    cache.find_near("scope", other, "What is the plan?", INT64_MAX);
    far.push_back(milliseconds_since(start));
    start = BenchClock::now();
    cache.find(std::to_string(near.size()), INT64_MAX);
    exact.push_back(milliseconds_since(start));
  }
  print_times("put, the last 5,000", puts);
  print_times("look for one that is near", near);
  print_times("look for one that is not", far);
  print_times("look by the key", exact);
  std::printf("found %.1f %% of those that are near\n",
              100 * static_cast<double>(n_found) / static_cast<double>(some.size()));
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const size_t n = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
  const size_t dimensions = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256;
  const bool wait = argc > 3 && std::strcmp(argv[3], "wait") == 0;
  return penstock::run(std::max<size_t>(n, 1), std::max<size_t>(dimensions, 1), wait);
}
