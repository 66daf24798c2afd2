#include "ops/cpu/linear.h"

#include <algorithm>
#include <new>
#include <optional>

#include "base/check.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/adapters.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/products.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

// Targets that share activations in one region; more are computed one region after the other.
constexpr size_t kMostTargets = 8;

// Products of one tensor with a few weights and with their adapters.
struct AdaptedProducts {
  AdaptedProducts(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets)
      : context(context),
        products(ready(context), x, targets),
        scratch(context, products.scratch_needs()) {
    make_rows(context, products);
    if (context.adapters != nullptr && !context.adapters->empty()) add_adapters(x, targets);
  }
  void add_adapters(Tensor x, std::span<const LinearTarget> targets) {
    adapters.emplace(context, x, targets, context.adapters->groups());
    if (adapters->empty()) return adapters.reset();
    sums = context.scratch.linear.allocate_array<float>(AdapterProducts::kSums *
                                                        static_cast<size_t>(context.pool.size()));
    context.pool.for_pieces(adapters->n_blocks(), 1, [&](int64_t begin, int64_t end, int) {
      adapters->reduce(static_cast<int>(begin), static_cast<int>(end));
    });
  }
  // Panels [begin, end) of target i.
  void run(size_t i, int64_t begin, int64_t end, int worker) const {
    products.run(context, i, begin, end, scratch.of(worker));
    if (adapters)
      adapters->add(i, static_cast<int>(begin), static_cast<int>(end),
                    sums + AdapterProducts::kSums * static_cast<size_t>(worker));
  }
  static const LinearContext& ready(const LinearContext& context) {
    context.scratch.linear.reset();
    return context;
  }

  const LinearContext& context;
  const RowProducts products;
  const WorkerScratch scratch;
  std::optional<AdapterProducts> adapters;  // made when the rows are; none: nothing is added
  float* sums = nullptr;                    // [workers][AdapterProducts::kSums]
};

// One parallel region for all targets: each worker takes pieces of their panels laid end to end.
void run_targets(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  const AdaptedProducts products(context, x, targets);
  int64_t firsts[kMostTargets + 1] = {};
  for (size_t i = 0; i < targets.size(); ++i)
    firsts[i + 1] = firsts[i] + products.products.n_panels(i);
  for_parts(context.pool, {firsts, targets.size() + 1}, products.products.run_grain(),
            [&](size_t i, int64_t begin, int64_t end, int worker) {
              products.run(i, begin, end, worker);
            });
}

// Rows that are multiplied with a head's weight from which on all threads share the product.
constexpr int kManyHeadRows = 64;

}  // namespace

void cpu_linear_by_head(const LinearContext& context, Tensor x,
                        std::span<const std::unique_ptr<Weight>> weights, Tensor out) {
  const auto n = static_cast<int>(weights.size());
  if (x.rows == 0 || n == 0) return;
  const auto target_of = [&](int h) {
    return LinearTarget{weights[static_cast<size_t>(h)].get(), nullptr, out.every(h, n)};
  };
  if (x.rows / n >= kManyHeadRows) {
    for (int h = 0; h < n; ++h) {
      const LinearTarget target = target_of(h);
      run_targets(context, x.every(h, n), {&target, 1});
    }
    return;
  }
  Arena& arena = AdaptedProducts::ready(context).scratch.linear;
  auto* targets = arena.allocate_array<LinearTarget>(weights.size());
  auto* products = arena.allocate_array<RowProducts>(weights.size());
  ScratchNeeds needs;
  for (int h = 0; h < n; ++h) {
    new (&targets[h]) LinearTarget(target_of(h));
    new (&products[h]) RowProducts(context, x.every(h, n), {&targets[h], 1});
    needs.add(products[h].scratch_needs());
  }
  const WorkerScratch scratch(context, needs);
  context.pool.for_pieces(n, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t h = begin; h < end; ++h) {
      products[h].make(context, 0, products[h].n_rows());
      products[h].run(context, 0, 0, products[h].n_panels(0), scratch.of(worker));
    }
  });
}

void cpu_linear(const LinearContext& context, Tensor x, std::span<const LinearTarget> targets) {
  if (x.rows == 0) return;
  for (size_t first = 0; first < targets.size(); first += kMostTargets) {
    run_targets(context, x, targets.subspan(first, std::min(kMostTargets, targets.size() - first)));
  }
}

void cpu_gated_linear(const LinearContext& context, Tensor x, const LinearTarget& gate,
                      const LinearTarget& up, const ActivationFunction& f, Tensor out) {
  if (x.rows == 0) return;
  const LinearTarget both[] = {gate, up};
  const AdaptedProducts products(context, x, both);
  PENSTOCK_CHECK(gate.out.cols == up.out.cols && out.cols == up.out.cols && out.rows == x.rows);
  context.pool.for_pieces(
      products.products.n_panels(0), products.products.run_grain(),
      [&](int64_t begin, int64_t end, int worker) {
        products.run(0, begin, end, worker);
        products.run(1, begin, end, worker);
        const auto first = static_cast<int>(begin) * kPanelRows;
        const int n = std::min(static_cast<int>(end) * kPanelRows, out.cols) - first;
        for (int row = 0; row < x.rows; ++row) {
          context.kernels.vector->activate_mul(f32(gate.out, row) + first, f32(up.out, row) + first,
                                               f, n, f32(out, row) + first);
        }
      });
}

void cpu_embed(const LinearContext& context, const Weight& table, std::span<const int32_t> ids,
               float scale, Tensor out, bool add) {
  const auto& weight = static_cast<const CpuWeight&>(table);
  PENSTOCK_CHECK(weight.cols() == out.cols);
  context.scratch.linear.reset();
  const size_t cols = static_cast<size_t>(out.cols);
  float* scratch = context.scratch.linear.allocate_array<float>(cols * context.pool.size());
  context.pool.for_ranges(static_cast<int64_t>(ids.size()), 4,
                          [&](int64_t begin, int64_t end, int worker) {
                            float* row = scratch + cols * worker;
                            for (int64_t t = begin; t < end; ++t) {
                              weight.decode_row(ids[t] < weight.rows() ? ids[t] : 0, row);
                              float* to = f32(out, static_cast<int>(t));
                              for (int i = 0; i < out.cols; ++i)
                                to[i] = (add ? to[i] : 0.0f) + row[i] * scale;
                            }
                          });
}

}  // namespace penstock
