// What a sum over the ranks of one host costs, for as many floats as a token of a model has features: two processes, each on a
// CPU of its own, from call to return, and a copy of as many bytes beside it.
//
//   communicator_bench
//   communicator_bench --benchmark_repetitions=20 --benchmark_report_aggregates_only
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "parallel/child_ranks.h"
#include "parallel/communicator.h"

namespace penstock {
namespace {

std::unique_ptr<Communicator> join(int rank, int segment) {
  stay_on_cpus(cpus_of_rank(rank, 2));
  CommunicatorConfig config;
  config.rank = rank, config.size = 2, config.segment = segment;
  return make_communicator("shm", config).value();
}

void sum_of_two(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const int segment = make_shm_segment(2).value();
  const pid_t child = fork();
  if (child == 0) {
    const auto ranks = join(1, segment);
    std::vector<float> x(n, 1.0f);
    while (ranks->all_reduce(x)) std::fill(x.begin(), x.end(), 1.0f);
    _exit(0);
  }
  {
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    const auto ranks = join(0, segment);
    std::vector<float> x(n, 1.0f);
    for (auto _ : state) {
      if (!ranks->all_reduce(x)) state.SkipWithError("the run has failed");
      std::fill(x.begin(), x.end(), 1.0f);
    }
    ranks->fail("done");
    sched_setaffinity(0, sizeof all, &all);
  }
  waitpid(child, nullptr, 0);
  close(segment);
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<int64_t>(sizeof(float)));
}

void copy(benchmark::State& state) {
  std::vector<float> from(static_cast<size_t>(state.range(0)), 1.0f), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(sum_of_two)->Arg(1)->Arg(2048)->Arg(4096)->Arg(8192)->Arg(1 << 20)->UseRealTime();
BENCHMARK(copy)->Arg(2048)->Arg(1 << 20);

}  // namespace
}  // namespace penstock

BENCHMARK_MAIN();
