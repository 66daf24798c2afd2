// What a sum over the ranks of one host costs, for as many floats as a token of a model has
// features: two processes, each on a CPU of its own, from call to return, and a copy of as many
// bytes beside it.
//
//   communicator_bench
//   communicator_bench --benchmark_repetitions=20 --benchmark_report_aggregates_only
//   mpirun --bind-to core -n 2 communicator_bench        # the sum between hosts, and MPI's own MPI_Allreduce beside it
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "parallel/child_ranks.h"
#include "parallel/communicator.h"
#include "parallel/host_cpus.h"

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
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

void copy(benchmark::State& state) {
  std::vector<float> from(static_cast<size_t>(state.range(0)), 1.0f), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

BENCHMARK(sum_of_two)->Arg(1)->Arg(2048)->Arg(4096)->Arg(8192)->Arg(1 << 20)->UseRealTime();
BENCHMARK(copy)->Arg(2048)->Arg(1 << 20);

// Time of a call in microseconds, the median of 21 rounds: with a link between them ranks wait in
// turns, one call for long and the next for nothing. All ranks make as many calls.
double time_of(int calls_of_round, const std::function<void()>& call) {
  constexpr int kRounds = 21;
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {  // the first does not count
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls_of_round; ++i) call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (round > 0) times.push_back(time.count() / calls_of_round);
  }
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

// OpenMPI's own, by the names that its headers stand for.
template <class Symbol>
Symbol mpi_symbol(const char* name) {
  static void* const library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  return reinterpret_cast<Symbol>(dlsym(library, name));
}

int measure_under_mpi(int rank, int size) {
  constexpr size_t kSizes[] = {1, 2048, 4096, 8192, 1 << 18};
  std::vector<double> ours, theirs;
  std::vector<int> n_calls;
  std::vector<float> x(std::ranges::max(kSizes), 1.0f);
  {
    CommunicatorConfig config;
    config.rank = rank, config.size = size;
    const auto ranks = make_communicator("mpi", config);
    if (!ranks) return std::fprintf(stderr, "%s\n", ranks.error().message.c_str()), 1;
    for (const size_t n : kSizes) {
      const auto call = [&] { (void)(*ranks)->all_reduce(std::span(x).first(n)); };
      // some 20 ms
      float calls = std::clamp(20e3f / static_cast<float>(time_of(1, call)), 2.0f, 200.0f);
      (void)(*ranks)->broadcast(std::as_writable_bytes(std::span(&calls, 1)), 0);
      n_calls.push_back(static_cast<int>(calls));
      ours.push_back(time_of(n_calls.back(), call));
    }
    (void)(*ranks)->barrier();
  }
  using AllReduce = int (*)(const void*, void*, int, void*, void*, void*);
  const auto all_reduce = mpi_symbol<AllReduce>("MPI_Allreduce");
  void* const floats = mpi_symbol<void*>("ompi_mpi_float");
  void* const sum = mpi_symbol<void*>("ompi_mpi_op_sum");
  void* const world = mpi_symbol<void*>("ompi_mpi_comm_world");
  std::vector<float> y(x.size());
  for (size_t i = 0; i < ours.size(); ++i)
    theirs.push_back(time_of(n_calls[i], [&] {
      all_reduce(x.data(), y.data(), static_cast<int>(kSizes[i]), floats, sum, world);
    }));
  for (size_t i = 0; i < ours.size() && rank == 0; ++i)
    std::printf("%6zu floats, %d ranks: row mpi %.2f us, MPI_Allreduce %.2f us\n", kSizes[i], size,
                ours[i], theirs[i]);
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (const auto place = penstock::mpi_place())
    return penstock::measure_under_mpi(place->rank, place->size);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
