// Mixture of experts: the tokens are sorted by the experts that they chose, each chosen expert is
// read once for all of them, and the experts' products are grouped: one region for all, whose
// panels are laid end to end.
#include <algorithm>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/mapped_file.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/adapters.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/products.h"
#include "ops/cpu/routing.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

// Rows of a group, if its first expert has no more: what they become should stay in a cache that
// all cores share.
constexpr int kMostGroupRows = 1024;

Tensor arena_tensor(Arena& arena, int rows, int cols) {
  return {arena.allocate_array<float>(static_cast<size_t>(rows) * static_cast<size_t>(cols)),
          DType::kF32, rows, cols, cols};
}

// The tokens of a step by expert: expert e has rows [firsts[e], firsts[e + 1]). Memory is the
// arena's.
struct SortedTokens {
  int n_tokens, n_experts, top_k;
  int n_computed;    // experts that have weights; those behind them give their input or nothing
  int* firsts;       // [n_experts + 1]
  int* token_of;     // [rows]
  float* weight_of;  // [rows]
  int* rows_of;      // [n_tokens, top_k], ascending, then -1: the order of every token's sum

  SortedTokens(const LinearContext& context, Tensor router_logits, const MoeParams& params)
      : n_tokens(router_logits.rows),
        n_experts(router_logits.cols),
        top_k(params.routing.n_active),
        n_computed(static_cast<int>(params.up.size())) {
    Arena& arena = context.scratch.moe;
    const auto n_rows = static_cast<size_t>(n_tokens) * static_cast<size_t>(top_k);
    auto* choices = arena.allocate_array<ExpertChoice>(n_rows);
    const float *bias = data_of(params.selection_bias), *scale = data_of(params.expert_scale);
    context.pool.for_ranges(n_tokens, 4, [&](int64_t begin, int64_t end, int) {
      for (auto t = static_cast<int>(begin); t < end; ++t) {
        ExpertChoice* own = choices + static_cast<ptrdiff_t>(t) * top_k;
        if (!params.chosen.empty()) {
          std::copy_n(params.chosen.data() + static_cast<ptrdiff_t>(t) * top_k, top_k, own);
          continue;
        }
        if (const float* const given = experts_of(context, params, t); given != nullptr) {
          weigh_experts(f32(router_logits, t), n_experts, params.routing, given, own);
        } else {
          choose_experts(f32(router_logits, t), n_experts, params.routing, bias, own);
        }
        for (int k = 0; scale != nullptr && k < top_k; ++k) own[k].weight *= scale[own[k].expert];
      }
    });
    firsts = arena.allocate_array<int>(static_cast<size_t>(n_experts) + 1);
    token_of = arena.allocate_array<int>(n_rows);
    weight_of = arena.allocate_array<float>(n_rows);
    rows_of = arena.allocate_array<int>(n_rows);
    sort(choices, arena.allocate_array<int>(static_cast<size_t>(std::max(n_tokens, n_experts))));
  }

  // of experts [begin, end)
  int n_rows(int begin, int end) const { return firsts[end] - firsts[begin]; }
  // The experts from `begin` on that are computed together.
  int group_end(int begin) const {
    int end = begin + 1;
    while (end < n_computed && n_rows(begin, end + 1) <= kMostGroupRows) ++end;
    return end;
  }

 private:
  // Returns the experts of the token (MoeParams::token_experts), or null; rows behind the step's tokens
  // have those of token 0.
  const float* experts_of(const LinearContext& context, const MoeParams& params, int row) const {
    if (params.token_experts == nullptr) return nullptr;
    const auto t = static_cast<size_t>(row);
    const int token = t < context.tokens.size() ? context.tokens[t] : 0;
    const int n_known = params.token_experts->size() / top_k;
    return data_of(params.token_experts) +
           static_cast<ptrdiff_t>(token < n_known ? token : 0) * top_k;
  }

  void sort(const ExpertChoice* choices, int* next) {
    const int n_all = n_tokens * top_k;
    std::fill_n(firsts, n_experts + 1, 0);
    for (int i = 0; i < n_all; ++i)
      if (choices[i].expert >= 0) ++firsts[choices[i].expert + 1];
    for (int e = 0; e < n_experts; ++e) firsts[e + 1] += firsts[e], next[e] = firsts[e];
    for (int i = 0; i < n_all; ++i) {
      if (choices[i].expert < 0) continue;
      const int row = next[choices[i].expert]++;
      token_of[row] = i / top_k, weight_of[row] = choices[i].weight;
    }
    std::fill_n(next, n_tokens, 0);
    std::fill_n(rows_of, n_all, -1);
    for (int row = 0; row < firsts[n_experts]; ++row) {
      const int t = token_of[row];
      rows_of[t * top_k + next[t]++] = row;
    }
  }
};

// The rows of each expert whose tokens have an adapter, by adapter. Memory is the arena's.
class ExpertAdapters {
 public:
  ExpertAdapters(const LinearContext& context, const MoeParams& params,
                 const SortedTokens& tokens) {
    if (context.adapters == nullptr || context.adapters->empty()) return;
    const auto groups = context.adapters->groups();
    if (!add_something(groups, params)) return;
    Arena& arena = context.scratch.moe;
    auto* group_of = arena.allocate_array<int>(static_cast<size_t>(tokens.n_tokens));
    std::fill_n(group_of, tokens.n_tokens, -1);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const int32_t row : groups[g].rows) group_of[row] = static_cast<int>(g);
    }
    const int n_rows = tokens.n_rows(0, tokens.n_experts);
    int32_t* rows = arena.allocate_array<int32_t>(static_cast<size_t>(n_rows));
    firsts_ = arena.allocate_array<int>(static_cast<size_t>(tokens.n_experts) + 1);
    groups_ = arena.allocate_array<AdapterRows::Group>(std::min(
        static_cast<size_t>(n_rows), groups.size() * static_cast<size_t>(tokens.n_experts)));
    int n = 0;
    for (int e = 0; e < tokens.n_experts; ++e) {
      firsts_[e] = n;
      for (size_t g = 0; g < groups.size(); ++g) {
        int32_t* const first = rows;
        for (int row = tokens.firsts[e]; row < tokens.firsts[e + 1]; ++row) {
          if (group_of[tokens.token_of[row]] == static_cast<int>(g))
            *rows++ = row - tokens.firsts[e];
        }
        if (rows > first) groups_[n++] = {groups[g].slot, {first, rows}};
      }
    }
    firsts_[tokens.n_experts] = n;
  }

  bool empty() const { return groups_ == nullptr; }
  // Returns the groups of one expert, with indices among its own rows.
  std::span<const AdapterRows::Group> of(int expert) const {
    if (empty()) return {};
    return {groups_ + firsts_[expert], groups_ + firsts_[expert + 1]};
  }

 private:
  // Many adapters leave experts as they are.
  static bool add_something(std::span<const AdapterRows::Group> groups, const MoeParams& params) {
    for (const auto& adapters : {params.gate_adapters, params.up_adapters, params.down_adapters}) {
      for (const AdapterTerms& terms : adapters) {
        for (const AdapterRows::Group& group : groups) {
          const auto slot = static_cast<size_t>(group.slot);
          if (slot < terms.size() && terms[slot].a != nullptr) return true;
        }
      }
    }
    return false;
  }

  AdapterRows::Group* groups_ = nullptr;
  int* firsts_ = nullptr;  // [n_experts + 1]
};

// The step's rows rounded once for all experts that read them, where these want the same whole
// numbers.
class SharedRows {
 public:
  SharedRows(const LinearContext& context, Tensor x, const MoeParams& params,
             const SortedTokens& tokens) {
    if (params.routing.weigh_input) return;  // every expert reads other numbers
    bool found = false;
    Activations::Form shared;
    for (int e = 0; e < tokens.n_computed; ++e) {
      const int n = tokens.n_rows(e, e + 1);
      for (const auto* weights : {&params.up, &params.gate}) {
        if (n == 0 || weights->empty()) continue;
        const auto& weight = static_cast<const CpuWeight&>(*(*weights)[static_cast<size_t>(e)]);
        Activations::Form form = Activations::wanted(weight, choose_gemm(context, weight, n));
        form.block_rows = int8_block_rows(x.rows);  // whoever picks rows lays them out anew
        if (form.kind != Activations::Kind::kInt8 || form.order != nullptr ||
            (found && form != shared))
          return;
        shared = form, found = true;
      }
    }
    if (found) rows_.emplace(context.scratch.moe, x, shared.rounding, shared.block_rows);
  }

  void make(const GemmKernels& kernels, int begin, int end) const {
    if (rows_) rows_->make(kernels, begin, end);
  }
  // Null where every expert makes its own.
  const RoundedRows* rows() const { return rows_ ? &*rows_ : nullptr; }

 private:
  std::optional<RoundedRows> rows_;
};

// Intermediate results of a group's rows, allocated for the largest group.
struct GroupTensors {
  Tensor x, up, hidden, result;

  GroupTensors(Arena& arena, const SortedTokens& tokens, const MoeParams& params, int model_dim) {
    int most = 0;
    for (int e = 0, end = 0; e < tokens.n_computed; e = end)
      end = tokens.group_end(e), most = std::max(most, tokens.n_rows(e, end));
    x = arena_tensor(arena, most, params.up[0]->cols());
    up = arena_tensor(arena, most, params.up[0]->rows());
    hidden = arena_tensor(arena, most, params.down[0]->cols());
    result = arena_tensor(arena, most, model_dim);
  }
};

// The products of a group's experts with one or two weights each.
class ExpertProducts {
 public:
  static constexpr int kMostTargets = 2;

  // No more than n_experts are added.
  ExpertProducts(const LinearContext& context, int n_experts)
      : context_(context),
        products_(
            context.scratch.linear.allocate_array<RowProducts>(static_cast<size_t>(n_experts))),
        targets_(context.scratch.linear.allocate_array<LinearTarget>(
            static_cast<size_t>(n_experts) * kMostTargets)),
        adapters_(
            context.scratch.linear.allocate_array<AdapterProducts>(static_cast<size_t>(n_experts))),
        first_rows_(context.scratch.linear.allocate_array<int64_t>(
            2 * (static_cast<size_t>(n_experts) + 1))),
        first_panels_(first_rows_ + n_experts + 1) {
    first_rows_[0] = first_panels_[0] = 0;
  }

  void add(Tensor x, std::span<const LinearTarget> targets, const PickedRows& picked = {}) {
    LinearTarget* own = targets_ + n_ * kMostTargets;
    std::ranges::copy(targets, own);
    new (&products_[n_]) RowProducts(context_, x, {own, targets.size()}, picked);
    needs_.add(products_[n_].scratch_needs());
    grain_ = std::max(grain_, products_[n_].run_grain());
    first_rows_[n_ + 1] = first_rows_[n_] + x.rows;
    first_panels_[n_ + 1] = first_panels_[n_] + products_[n_].n_panels(0);
    ++n_;
  }
  // before(begin, end) is called for rows of the group before these become activations.
  template <class F>
  void make(F&& before) const {
    for_parts(
        context_.pool, {first_rows_, n_ + 1}, 4, [&](size_t i, int64_t begin, int64_t end, int) {
          before(static_cast<int>(first_rows_[i] + begin), static_cast<int>(first_rows_[i] + end));
          products_[i].make(context_, static_cast<int>(begin), static_cast<int>(end));
        });
  }
  // When activations are made: what the adapters of these rows of product i add to it, too.
  void adapt(size_t i, Tensor x, std::span<const AdapterRows::Group> groups) {
    new (&adapters_[i]) AdapterProducts(context_, x, products_[i].targets(), groups);
  }
  void reduce_for_adapters() {
    int64_t* const firsts = context_.scratch.linear.allocate_array<int64_t>(n_ + 1);
    firsts[0] = 0;
    for (size_t i = 0; i < n_; ++i) firsts[i + 1] = firsts[i] + adapters_[i].n_blocks();
    if (firsts[n_] == 0) return;
    sums_ = context_.scratch.linear.allocate_array<float>(
        AdapterProducts::kSums * static_cast<size_t>(context_.pool.size()));
    for_parts(context_.pool, {firsts, n_ + 1}, 1, [&](size_t i, int64_t begin, int64_t end, int) {
      adapters_[i].reduce(static_cast<int>(begin), static_cast<int>(end));
    });
  }
  // after(targets, begin, end): panels [begin, end) of all targets of an expert are there.
  template <class F>
  void run(F&& after) const {
    const WorkerScratch scratch(context_, needs_);
    for_parts(context_.pool, {first_panels_, n_ + 1}, grain_,
              [&](size_t i, int64_t begin, int64_t end, int worker) {
                const std::span<const LinearTarget> targets = products_[i].targets();
                for (size_t target = 0; target < targets.size(); ++target) {
                  products_[i].run(context_, target, begin, end, scratch.of(worker));
                  if (sums_ != nullptr)
                    adapters_[i].add(target, static_cast<int>(begin), static_cast<int>(end),
                                     sums_ + AdapterProducts::kSums * static_cast<size_t>(worker));
                }
                after(targets, static_cast<int>(begin), static_cast<int>(end));
              });
  }

 private:
  const LinearContext& context_;
  size_t n_ = 0;
  RowProducts* products_;
  LinearTarget* targets_;
  AdapterProducts* adapters_;
  // [workers][AdapterProducts::kSums], or null: nothing is added
  float* sums_ = nullptr;
  int64_t *first_rows_, *first_panels_;  // [n + 1]
  int64_t grain_ = 1;
  ScratchNeeds needs_;
};

LinearTarget target_of(std::span<const std::unique_ptr<Weight>> weights,
                       std::span<const std::unique_ptr<Vector>> biases,
                       std::span<const AdapterTerms> adapters, int expert, Tensor out) {
  return {weights[expert].get(), biases.empty() ? nullptr : biases[expert].get(), out,
          adapters.empty() ? nullptr : &adapters[expert]};
}

// One group of experts for the tokens that chose them.
class ExpertGroup {
 public:
  ExpertGroup(const LinearContext& context, const MoeParams& params, const SortedTokens& tokens,
              const ExpertAdapters& adapters, const SharedRows& shared, const GroupTensors& tensors,
              int begin, int end)
      : context_(context),
        params_(params),
        tokens_(tokens),
        adapters_(adapters),
        shared_(shared),
        tensors_(tensors),
        begin_(begin),
        end_(end),
        first_row_(tokens.firsts[begin]) {}

  // hidden = f(gate(x)) * up(x), or f(up(x)) without gates.
  void to_hidden(Tensor x) const {
    const bool gated = !params_.gate.empty();
    ExpertProducts products = each([&](int e, int first, int n, ExpertProducts& to) {
      const Tensor hidden = own_hidden().row_range(first, n), up = tensors_.up.row_range(first, n);
      const LinearTarget both[] = {
          target_of(params_.up, params_.up_bias, params_.up_adapters, e, gated ? up : hidden),
          gated ? target_of(params_.gate, params_.gate_bias, params_.gate_adapters, e, hidden)
                : LinearTarget{}};
      to.add(tensors_.x.row_range(first, n), std::span(both).first(gated ? 2 : 1),
             {shared_.rows(), tokens_.token_of + first_row_ + first});
    });
    products.make([&](int begin, int end) { gather(x, begin, end); });
    adapt(products, tensors_.x);
    const VectorKernels& vector = *context_.kernels.vector;
    products.run([&](std::span<const LinearTarget> targets, int begin, int end) {
      const Tensor up = targets.front().out, hidden = targets.back().out;
      const int first = begin * kPanelRows, n = std::min(end * kPanelRows, hidden.cols) - first;
      for (int row = 0; row < hidden.rows; ++row) {
        float* to = f32(hidden, row) + first;
        if (gated) {
          vector.activate_mul(to, f32(up, row) + first, params_.activation, n, to);
        } else {
          vector.activate(to, params_.activation, n);
        }
      }
    });
  }

  // result = down(hidden).
  void to_result() const {
    ExpertProducts products = each([&](int e, int first, int n, ExpertProducts& to) {
      const LinearTarget down = target_of(params_.down, params_.down_bias, params_.down_adapters, e,
                                          tensors_.result.row_range(first, n));
      to.add(tensors_.hidden.row_range(first, n), {&down, 1});
    });
    products.make([](int, int) {});
    adapt(products, tensors_.hidden);
    products.run([](std::span<const LinearTarget>, int, int) {});
    if (params_.result_scale != nullptr) norm_result();
  }

  // out[t] += the results of its experts of this group.
  void add_to(Tensor out) const {
    const int last_row = tokens_.firsts[end_];
    context_.pool.for_ranges(tokens_.n_tokens, 2, [&](int64_t begin, int64_t end, int) {
      for (auto t = static_cast<int>(begin); t < end; ++t) {
        float* to = f32(out, t);
        for (int k = 0; k < tokens_.top_k; ++k) {
          const int row = tokens_.rows_of[t * tokens_.top_k + k];
          if (row < first_row_ || row >= last_row) continue;
          const float* from = f32(tensors_.result, row - first_row_);
          const float factor = params_.routing.weigh_input ? 1.0f : tokens_.weight_of[row];
          for (int i = 0; i < out.cols; ++i) to[i] += factor * from[i];
        }
      }
    });
  }

 private:
  // result = norm(result_scale * result).
  void norm_result() const {
    const float* const scale = data_of(params_.result_scale);
    const int n = tensors_.result.cols;
    context_.pool.for_ranges(tokens_.n_rows(begin_, end_), 2, [&](int64_t begin, int64_t end, int) {
      for (auto row = static_cast<int>(begin); row < end; ++row) {
        float* const x = f32(tensors_.result, row);
        for (int i = 0; i < n; ++i) x[i] *= scale[i];
        context_.kernels.vector->rms_norm(x, nullptr, params_.result_eps, n, x);
      }
    });
  }

  Tensor own_hidden() const { return tensors_.hidden.columns(params_.down_lead, tensors_.up.cols); }

  // add(expert, first row in the group, rows, products) for each expert that has rows.
  template <class F>
  ExpertProducts each(F&& add) const {
    context_.scratch.linear.reset();
    ExpertProducts products(context_, end_ - begin_);
    for (int e = begin_; e < end_; ++e) {
      if (const int n = tokens_.n_rows(e, e + 1); n > 0)
        add(e, tokens_.firsts[e] - first_row_, n, products);
    }
    return products;
  }

  // The products are those of each().
  void adapt(ExpertProducts& products, Tensor x) const {
    if (adapters_.empty()) return;
    size_t i = 0;
    for (int e = begin_; e < end_; ++e) {
      if (const int n = tokens_.n_rows(e, e + 1); n > 0)
        products.adapt(i++, x.row_range(tokens_.firsts[e] - first_row_, n), adapters_.of(e));
    }
    products.reduce_for_adapters();
  }

  // Rows [begin, end) of the group.
  void gather(Tensor x, int begin, int end) const {
    for (int row = begin; row < end; ++row) {
      // Zeros for the inputs of `down` before and after this rank's share.
      if (tensors_.hidden.cols > tensors_.up.cols)
        std::fill_n(f32(tensors_.hidden, row), tensors_.hidden.cols, 0.0f);
      if (shared_.rows() != nullptr && adapters_.empty()) continue;
      const float* from = f32(x, tokens_.token_of[first_row_ + row]);
      const float factor = params_.routing.weigh_input ? tokens_.weight_of[first_row_ + row] : 1.0f;
      float* to = f32(tensors_.x, row);
      for (int i = 0; i < x.cols; ++i) to[i] = from[i] * factor;
    }
  }

  const LinearContext& context_;
  const MoeParams& params_;
  const SortedTokens& tokens_;
  const ExpertAdapters& adapters_;
  const SharedRows& shared_;
  const GroupTensors& tensors_;
  int begin_, end_, first_row_;
};

// Starts to read the experts of [begin, end) that have rows and are not in memory, all at once.
void read_missing_experts(const LinearContext& context, const MoeParams& params,
                          const SortedTokens& tokens, int begin, int end) {
  context.pool.for_ranges(end - begin, 1, [&](int64_t first, int64_t last, int) {
    int64_t missing = 0;
    for (auto e = static_cast<size_t>(begin + first); e < static_cast<size_t>(begin + last); ++e) {
      if (tokens.n_rows(static_cast<int>(e), static_cast<int>(e) + 1) == 0) continue;
      for (const auto* weights : {&params.gate, &params.up, &params.down}) {
        if (!weights->empty())
          missing += read_missing(static_cast<const CpuWeight&>(*(*weights)[e]).bytes());
      }
    }
    context.scratch.expert_bytes_read += missing;
  });
}

// out[t] += its choices among the experts without weights.
void add_identities(const LinearContext& context, Tensor x, const SortedTokens& tokens,
                    Tensor out) {
  const int first_row = tokens.firsts[tokens.n_computed];
  context.pool.for_ranges(tokens.n_tokens, 2, [&](int64_t begin, int64_t end, int) {
    for (auto t = static_cast<int>(begin); t < end; ++t) {
      float factor = 0.0f;
      for (int k = 0; k < tokens.top_k; ++k) {
        const int row = tokens.rows_of[t * tokens.top_k + k];
        if (row >= first_row) factor += tokens.weight_of[row];
      }
      const float* const from = f32(x, t);
      float* const to = f32(out, t);
      for (int i = 0; i < out.cols && factor != 0.0f; ++i) to[i] += factor * from[i];
    }
  });
}

}  // namespace

void cpu_moe(const LinearContext& context, Tensor x, Tensor router_logits, const MoeParams& params,
             Tensor out) {
  const int n_experts = router_logits.cols, top_k = params.routing.n_active;
  PENSTOCK_CHECK(top_k >= 1 && top_k <= n_experts &&
                 static_cast<int>(params.up.size()) <= n_experts &&
                 n_experts % params.routing.n_groups == 0);
  context.scratch.moe.reset();
  const SortedTokens tokens(context, router_logits.row_range(0, x.rows), params);
  const ExpertAdapters adapters(context, params, tokens);
  const SharedRows shared(context, x, params, tokens);
  context.pool.for_ranges(x.rows, 4, [&](int64_t begin, int64_t end, int) {
    for (auto t = static_cast<int>(begin); t < end; ++t) std::fill_n(f32(out, t), out.cols, 0.0f);
    shared.make(*context.kernels.gemm, static_cast<int>(begin), static_cast<int>(end));
  });
  const GroupTensors tensors(context.scratch.moe, tokens, params, out.cols);
  // The next group's experts are read while one is computed.
  const auto read_group = [&](int begin) {
    if (params.mapped && begin < tokens.n_computed)
      read_missing_experts(context, params, tokens, begin, tokens.group_end(begin));
  };
  read_group(0);
  for (int begin = 0, end = 0; begin < tokens.n_computed; begin = end) {
    end = tokens.group_end(begin);
    read_group(end);
    if (tokens.n_rows(begin, end) == 0) continue;
    const ExpertGroup group(context, params, tokens, adapters, shared, tensors, begin, end);
    group.to_hidden(x);
    group.to_result();
    group.add_to(out);
  }
  if (tokens.n_computed < n_experts && !params.idle_rest) add_identities(context, x, tokens, out);
}

}  // namespace penstock
