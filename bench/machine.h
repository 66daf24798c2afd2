#pragma once

// What the kernel benchmarks share: settings from the environment, the threads, the kernels, and
// main().
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "kernels/probe_kernels.h"

namespace penstock {

// A whole number from the environment.
inline int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

inline ThreadPool& pool() {
  static ThreadPool pool(setting("PENSTOCK_BENCH_THREADS", available_cpus()));
  return pool;
}

inline const KernelTable& table() {
  static const KernelTable& selected = *select_kernels().value();
  return selected;
}

// The pure read that kernels are held against.
inline uint64_t probe_read(const void* data, size_t bytes) {
  return read_probes(table())[0](data, bytes);
}

// The widest unit of the table for these operands.
inline ComputeProbe probe_unit(ComputeProbe::Operand operand) {
  ComputeProbe widest{};
  for (const ComputeProbe& probe : compute_probes(table())) {
    if (probe.operand == operand) widest = probe;
  }
  return widest;
}

inline int run_benchmarks(int argc, char** argv, void (*register_all)()) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("isa", table().name);
  benchmark::AddCustomContext("threads", std::to_string(pool().size()));
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace penstock
