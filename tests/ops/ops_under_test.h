// The backends that the op conformance suite runs against. A new backend is one more row.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "ops/cpu/cpu_ops.h"

namespace penstock {

struct OpsUnderTest {
  std::string name;  // "cpu_avx2_t3_invariant"
  std::string isa;   // of the cpu
  OpsConfig config;
  std::string backend = "cpu";

  bool is_cpu() const { return backend == "cpu"; }
  std::unique_ptr<Ops> make() const {
    if (!is_cpu()) return std::move(make_ops(backend, config).value());
    return std::make_unique<CpuOps>(**select_kernels(isa), config);
  }
  friend std::ostream& operator<<(std::ostream& out, const OpsUnderTest& ops) {
    return out << ops.name;
  }
};

inline std::vector<OpsUnderTest> ops_under_test() {
  std::vector<OpsUnderTest> all;
  for (const KernelTable& table : available_kernels()) {
    for (const int threads : {1, 3}) {
      if (table.emulated && threads == 1) continue;  // slow
      for (const bool invariant : {false, true}) {
        const std::string name = std::string("cpu_") + table.name + "_t" + std::to_string(threads) +
                                 (invariant ? "_invariant" : "");
        all.push_back({name, table.name, {threads, invariant}});
      }
    }
  }
  for (const std::string backend : {"cuda_emulated", "cuda"}) {
    // tolerances of sums that nothing was rounded for
    const OpsConfig config{.n_threads = 1, .batch_invariant = true};
    const auto made = make_ops(backend, config);  // an error: not in this build, or no GPU here
    if (made) all.push_back({backend, "", config, backend});
  }
  return all;
}

inline std::vector<float> random_floats(size_t n, unsigned seed, float scale = 1.0f) {
  std::minstd_rand generator(seed * 2654435761u + 1);
  std::vector<float> x(n);
  for (float& v : x) {  // close to normal, and cheap
    const uint32_t bits = generator();
    v = (static_cast<float>((bits & 1023) + (bits >> 10 & 1023) + (bits >> 20 & 1023)) / 512.0f -
         3.0f) *
        scale;
  }
  return x;
}

// A tensor of the step with these values.
inline Tensor tensor_of(Ops& ops, const std::vector<float>& values, int rows, int cols) {
  const Tensor tensor = ops.new_tensor(rows, cols);
  ops.write_rows(values, tensor);
  return tensor;
}

// What a tensor holds.
struct Values {
  std::vector<float> all;
  int cols = 0;

  const float* row(int i = 0) const { return all.data() + static_cast<ptrdiff_t>(i) * cols; }
  float at(int row, int col) const { return this->row(row)[col]; }
};

inline Values read(Ops& ops, Tensor tensor) {
  Values values{std::vector<float>(static_cast<size_t>(tensor.rows) * tensor.cols), tensor.cols};
  ops.read_rows(tensor, values.all);
  return values;
}

}  // namespace penstock
