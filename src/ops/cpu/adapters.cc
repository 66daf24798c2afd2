#include "ops/cpu/adapters.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/gemm_kernels.h"
#include "kernels/vector_kernels.h"
#include "ops/cpu/gemm_choice.h"
#include "ops/cpu/host_tensor.h"
#include "ops/cpu/weight.h"

namespace penstock {
namespace {

const PanelMatrix& panels_of(const Weight* weight) {
  return static_cast<const CpuWeight&>(*weight).panels();
}

}  // namespace

void AdapterRows::set(const Batch& batch) {
  rows_.clear(), groups_.clear();
  if (batch.adapters.empty()) return;
  rows_.reserve(batch.tokens.size());
  const int last = *std::ranges::max_element(batch.adapters);
  for (int slot = 0; slot <= last; ++slot) {
    const size_t first = rows_.size();
    for (size_t s = 0; s < batch.adapters.size(); ++s) {
      if (batch.adapters[s] != slot) continue;
      for (int row = batch.seq_offsets[s]; row < batch.seq_offsets[s + 1]; ++row)
        rows_.push_back(row);
    }
    if (rows_.size() > first)
      groups_.push_back({slot, {rows_.data() + first, rows_.size() - first}});
  }
}

AdapterProducts::AdapterProducts(const LinearContext& context, Tensor x,
                                 std::span<const LinearTarget> targets,
                                 std::span<const AdapterRows::Group> groups)
    : context_(context), targets_(targets) {
  if (groups.empty()) return;
  find_terms(x, groups);
  gather(x);
  for (int t = 0; t < n_terms_; ++t) n_blocks_ += terms_[t].n_blocks();
}

void AdapterProducts::reduce(int begin, int end) const {
  int first = 0;  // block of the term, in the concatenation
  for (int t = 0; t < n_terms_; ++t) {
    const int b = std::max(begin - first, 0), e = std::min(end - first, terms_[t].n_blocks());
    for (int block = b; block < e; ++block) reduce_block(terms_[t], block);
    first += terms_[t].n_blocks();
  }
}

void AdapterProducts::find_terms(Tensor x, std::span<const AdapterRows::Group> groups) {
  terms_ = context_.scratch.linear.allocate_array<Term>(targets_.size() * groups.size());
  for (const AdapterRows::Group& group : groups) {
    for (size_t i = 0; i < targets_.size(); ++i) {
      const AdapterTerms* adapters = targets_[i].adapters;
      if (adapters == nullptr || group.slot >= static_cast<int>(adapters->size())) continue;
      const AdapterTerm& adapter = (*adapters)[static_cast<size_t>(group.slot)];
      if (adapter.a == nullptr) continue;
      Term term{i, &group, &panels_of(adapter.a), &panels_of(adapter.b)};
      PENSTOCK_CHECK(term.a->cols == x.cols && term.b->rows == targets_[i].out.cols &&
                     term.b->cols == term.a->rows && group.rows.back() < x.rows);
      share(term);
      terms_[n_terms_++] = term;
    }
  }
}

// Layers that are one in the adapter have one a.
void AdapterProducts::share(Term& term) const {
  for (int t = 0; t < n_terms_; ++t) {
    const Term& other = terms_[t];
    if (other.group != term.group || other.a != term.a) continue;
    term.thin = other.thin, term.computed_before = true;
    return;
  }
  term.thin = context_.scratch.linear.allocate_array<float>(term.group->rows.size() *
                                                            static_cast<size_t>(term.a->rows));
}

// Rows that do not follow each other are copied together, once for all targets.
void AdapterProducts::gather(Tensor x) {
  for (int t = 0; t < n_terms_; ++t) {
    Term& term = terms_[t];
    const auto rows = term.group->rows;
    if (term.group->adjacent()) {
      term.x = f32(x, rows.front()), term.x_stride = x.row_stride;
      continue;
    }
    if (t > 0 && terms_[t - 1].group == term.group) {
      term.x = terms_[t - 1].x, term.x_stride = terms_[t - 1].x_stride;
      continue;
    }
    const auto cols = static_cast<size_t>(x.cols);
    float* to = context_.scratch.linear.allocate_array<float>(rows.size() * cols);
    context_.pool.for_ranges(static_cast<int64_t>(rows.size()), 16,
                             [&](int64_t begin, int64_t end, int) {
                               for (int64_t r = begin; r < end; ++r)
                                 std::copy_n(f32(x, rows[static_cast<size_t>(r)]), cols,
                                             to + static_cast<size_t>(r) * cols);
                             });
    term.x = to, term.x_stride = x.cols;
  }
}

void AdapterProducts::reduce_block(const Term& term, int block) const {
  if (term.computed_before) return;
  const int first = block * kBlockRows;
  const int n = std::min(static_cast<int>(term.group->rows.size()) - first, kBlockRows),
            rank = term.a->rows;
  const auto multiply = context_.kernels.gemm->few_panels[static_cast<int>(term.a->type)];
  multiply(*term.a, {term.x + first * term.x_stride, term.x_stride}, n, 0, term.a->n_panels(),
           {term.thin + static_cast<ptrdiff_t>(first) * rank, rank, nullptr});
}

void AdapterProducts::add(size_t i, int begin, int end, float* sums) const {
  constexpr int kWidth = kBlockPanels * kPanelRows;
  const GemmPlans plans{context_.kernels.gemm->plans, {}};  // by vectors: in F32
  for (int t = 0; t < n_terms_; ++t) {
    const Term& term = terms_[t];
    if (term.target != i) continue;
    const Tensor& out = targets_[i].out;
    const int n_rows = static_cast<int>(term.group->rows.size()), rank = term.a->rows;
    const auto* const multiply = context_.kernels.gemm->f32[static_cast<int>(term.b->type)];
    for (int panel = begin; panel < end; panel += kBlockPanels) {
      const int panel_end = std::min(panel + kBlockPanels, end), column = panel * kPanelRows;
      const int width = std::min(panel_end * kPanelRows, out.cols) - column;
      for (int first = 0; first < n_rows; first += kBlockRows) {
        const int n = std::min(n_rows - first, kBlockRows);
        const GemmChoice choice = choose_gemm(plans, term.b->type, false, n, context_.traits);
        multiply[choice.index](*term.b, {term.thin + static_cast<ptrdiff_t>(first) * rank, rank}, n,
                               panel, panel_end, {sums - column, kWidth, nullptr});
        for (int r = 0; r < n; ++r) {
          const int row = term.group->rows[static_cast<size_t>(first + r)];
          context_.kernels.vector->add_scaled(f32(out, row) + column, sums + r * kWidth, 1.0f,
                                              width);
        }
      }
    }
  }
}

}  // namespace penstock
