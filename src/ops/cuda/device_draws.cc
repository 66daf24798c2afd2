#include "ops/cuda/device_draws.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {
namespace {

static_assert(static_cast<int>(LogitEdit::Kind::kSet) == 0 && static_cast<int>(LogitEdit::Kind::kAdd) == 1 &&
              static_cast<int>(LogitEdit::Kind::kPenalize) == 2);

bool draws_here(const SampleRow& row) {
  const bool filters = row.min_p > 0 || row.top_k > 0 || row.top_p < 1;
  return row.n_top == 0 && (row.temperature == 0 || !filters);
}

// Of all draws of a call: what each is, and the edits and masks of all, one after the other.
struct Described {
  std::vector<DrawOnDevice> draws;
  std::vector<EditOnDevice> edits;
  std::vector<uint32_t> masks;
};

Described describe(std::span<const SampleRow> rows, int vocab) {
  Described all;
  for (const SampleRow& row : rows) {
    DrawOnDevice draw{};
    draw.row = draws_here(row) ? row.row : -1, draw.mask = -1;
    draw.edits = static_cast<int32_t>(all.edits.size()), draw.n_edits = row.n_edits;
    draw.temperature = row.temperature, draw.u = row.u;
    draw.report = row.report, draw.likeliest = row.likeliest;
    for (const LogitEdit& edit : std::span(row.edits, static_cast<size_t>(row.n_edits)))
      all.edits.push_back({edit.token, static_cast<uint16_t>(edit.kind), edit.phase, edit.value});
    if (row.mask != nullptr) {
      draw.mask = static_cast<int64_t>(all.masks.size());
      all.masks.insert(all.masks.end(), row.mask, row.mask + (vocab + 31) / 32);
    }
    all.draws.push_back(draw);
  }
  return all;
}

SampleResult result_of(const SampleRow& row, const DrawnOnDevice& drawn) {
  SampleResult result;
  if (!draws_here(row)) return result;
  result.drawn = true;
  result.token = drawn.token < 0 ? kNoToken : drawn.token;
  if (row.likeliest) result.likeliest = static_cast<float>(1.0 / drawn.raw_sum);
  if (row.report && result.token != kNoToken) {
    const float log_sum = drawn.raw_most + static_cast<float>(std::log(drawn.raw_sum));
    result.logprob = drawn.raw_logit - log_sum, result.rank = drawn.rank;
  }
  return result;
}

}  // namespace

template <class T>
T* DeviceDraws::scratch(size_t n) {
  Result<void*> taken = step_memory_.take(n * sizeof(T));
  if (taken) return static_cast<T*>(*taken);
  device_.give_up(taken.error());
  return nullptr;
}

template <class T>
T* DeviceDraws::bring(const std::vector<T>& values) {
  if (values.empty()) return nullptr;
  T* const to = scratch<T>(values.size());
  if (to != nullptr) device_.copy_in(to, values.data(), values.size() * sizeof(T));
  return to;
}

void DeviceDraws::sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results) {
  if (rows.empty()) return;
  now_ = 1 - now_;
  Asked& asked = asked_[now_];
  tell(asked);
  const size_t n = rows.size();
  if (asked.memory.bytes() < n * sizeof(DrawnOnDevice)) {
    Result<Memory> memory = Memory::make(device_, 2 * n * sizeof(DrawnOnDevice));
    if (!memory) return device_.give_up(memory.error());
    asked.memory = std::move(*memory);
  }
  asked.rows.assign(rows.begin(), rows.end());
  asked.results = results;
  asked.step = ended_ ? last_ticket_ : last_ticket_ + 1;
  asked.pending = true;
  const Described described = describe(rows, logits.cols);
  const Draw kernel{rows_of(logits),
                    bring(described.draws),
                    bring(described.edits),
                    bring(described.masks),
                    scratch<float>(n * static_cast<size_t>(logits.cols)),
                    scratch<double>(n * static_cast<size_t>(Draw::pieces_of(logits.cols))),
                    asked.memory.as<DrawnOnDevice>()};
  device_.launch(kernel, Grid{static_cast<int>(n), 1, Draw::kSharedBytes});
}

void DeviceDraws::tell(Asked& asked) {
  if (!asked.pending) return;
  asked.pending = false;
  std::vector<DrawnOnDevice> all(asked.rows.size());
  device_.copy_out(all.data(), asked.memory.data(), all.size() * sizeof(DrawnOnDevice));
  const bool failed = !device_.status();
  for (size_t i = 0; i < all.size(); ++i)
    asked.results[i] = failed ? SampleResult{} : result_of(asked.rows[i], all[i]);
}

StepTicket DeviceDraws::end_step() {
  ended_ = true;
  return last_ticket_ = device_.mark();
}

void DeviceDraws::wait(StepTicket ticket) {
  device_.wait(ticket);
  for (Asked& asked : asked_)
    if (asked.step <= ticket) tell(asked);
}

void DeviceDraws::begin_step(const Batch& batch, const BatchOnDevice* on_device) {
  ended_ = false;
  if (std::ranges::none_of(batch.tokens, [](TokenId token) { return token < 0; })) return;
  device_.launch(TakeDrawnTokens{on_device, asked_[now_].memory.as<const DrawnOnDevice>()},
                 Grid{(batch.n_tokens() + TakeDrawnTokens::kThreads - 1) / TakeDrawnTokens::kThreads});
}

}  // namespace penstock::cuda
