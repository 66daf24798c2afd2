#include "ops/cuda/device_draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {

// Of all draws of a call: what each is, and the edits and masks of all, one after the other.
struct Described {
  std::vector<DrawOnDevice> draws;
  std::vector<EditOnDevice> edits;
  std::vector<uint32_t> masks;
  int most_top = 0;
};

namespace {

static_assert(static_cast<int>(LogitEdit::Kind::kSet) == 0 && static_cast<int>(LogitEdit::Kind::kAdd) == 1 &&
              static_cast<int>(LogitEdit::Kind::kPenalize) == 2);

constexpr float kInf = std::numeric_limits<float>::infinity();

Described describe(std::span<const SampleRow> rows, int vocab) {
  Described all;
  for (const SampleRow& row : rows) {
    DrawOnDevice draw{};
    draw.row = row.row, draw.mask = -1;
    draw.edits = static_cast<int32_t>(all.edits.size()), draw.n_edits = row.n_edits;
    draw.temperature = row.temperature, draw.u = row.u;
    draw.least_x = row.min_p > 0 ? std::log(row.min_p) : -kInf;
    draw.top_k = row.top_k, draw.top_p = row.top_p;
    draw.report = row.report, draw.likeliest = row.likeliest, draw.n_top = row.n_top;
    all.most_top = std::max(all.most_top, row.n_top);
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

SampleResult result_of(const SampleRow& row, const DrawnOnDevice& drawn, const TopOnDevice* top) {
  SampleResult result;
  if (drawn.token == DrawnOnDevice::kLeft) return result;
  result.drawn = true;
  result.token = drawn.token < 0 ? kNoToken : drawn.token;
  if (row.likeliest) result.likeliest = static_cast<float>(1.0 / drawn.raw_sum);
  const float log_sum = drawn.raw_most + static_cast<float>(std::log(drawn.raw_sum));
  if (row.report && result.token != kNoToken)
    result.logprob = drawn.raw_logit - log_sum, result.rank = drawn.rank;
  result.n_top = drawn.n_top;
  for (int i = 0; i < drawn.n_top; ++i) row.top[i] = {top[i].token, top[i].raw_logit - log_sum, i + 1};
  return result;
}

template <class T>
std::byte* lay_behind(std::byte* to, const std::vector<T>& values) {
  std::memcpy(to, values.data(), values.size() * sizeof(T));
  return to + values.size() * sizeof(T);
}

}  // namespace

template <class T>
T* DeviceDraws::scratch(size_t n) {
  Result<void*> taken = step_memory_.take(n * sizeof(T));
  if (taken) return static_cast<T*>(*taken);
  device_.give_up(taken.error());
  return nullptr;
}

bool DeviceDraws::bring(const Described& described, Draw& kernel) {
  static_assert(sizeof(DrawOnDevice) % alignof(EditOnDevice) == 0 &&
                sizeof(EditOnDevice) % alignof(uint32_t) == 0);
  const size_t edits_at = described.draws.size() * sizeof(DrawOnDevice),
               masks_at = edits_at + described.edits.size() * sizeof(EditOnDevice),
               bytes = masks_at + described.masks.size() * sizeof(uint32_t);
  auto* const to = scratch<std::byte>(bytes);
  if (to == nullptr) return false;
  const Result<std::span<std::byte>> staged = staged_.next(bytes);
  if (!staged) return device_.give_up(staged.error()), false;
  lay_behind(lay_behind(lay_behind(staged->data(), described.draws), described.edits), described.masks);
  staged_.send(to);
  kernel.draws = reinterpret_cast<const DrawOnDevice*>(to);
  kernel.edits = reinterpret_cast<const EditOnDevice*>(to + edits_at);
  kernel.masks = reinterpret_cast<const uint32_t*>(to + masks_at);
  return true;
}

void DeviceDraws::sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results) {
  if (rows.empty()) return;
  now_ = 1 - now_;
  Asked& asked = asked_[now_];
  tell(asked);
  const size_t n = rows.size();
  const Described described = describe(rows, logits.cols);
  if (!make_room(asked, n, n * static_cast<size_t>(described.most_top))) return;
  asked.rows.assign(rows.begin(), rows.end());
  asked.results = results;
  asked.tops_stride = described.most_top;
  asked.step = ended_ ? last_ticket_ : last_ticket_ + 1;
  asked.pending = true;
  Draw kernel{rows_of(logits),
              nullptr,
              nullptr,
              nullptr,
              scratch<float>(n * static_cast<size_t>(logits.cols)),
              scratch<double>(n * static_cast<size_t>(draw_pieces(logits.cols))),
              asked.drawn.as<DrawnOnDevice>(),
              asked.tops.as<TopOnDevice>(),
              described.most_top};
  if (!bring(described, kernel)) return;
  const Grid grid{static_cast<int>(n), 1, Draw::kSharedBytes};
#ifdef PENSTOCK_CUDA_EMULATION
  if (alone_ && device_.status()) {
    device_.wait(device_.mark());  // for the descriptions
    Emulated<DrawAlone>::launch({kernel.logits, kernel.draws, kernel.edits, kernel.masks, kernel.edited,
                                 kernel.piece_sums, kernel.drawn, kernel.tops, kernel.tops_stride},
                                grid);
    return ask_back(asked, n * static_cast<size_t>(described.most_top));
  }
#endif
  device_.launch(kernel, grid);
  ask_back(asked, n * static_cast<size_t>(described.most_top));
}

void DeviceDraws::ask_back(Asked& asked, size_t n_tops) {
  const size_t bytes = asked.rows.size() * sizeof(DrawnOnDevice);
  device_.copy_out_behind(asked.told.data(), asked.drawn.data(), bytes);
  if (n_tops > 0)
    device_.copy_out_behind(asked.told.data() + bytes, asked.tops.data(), n_tops * sizeof(TopOnDevice));
  asked.copied = device_.mark();
}

// False after a failure.
bool DeviceDraws::make_room(Asked& asked, size_t n_draws, size_t n_tops) {
  const auto at_least = [&](Memory& memory, size_t bytes) {
    if (memory.bytes() >= bytes) return true;
    Result<Memory> larger = Memory::make(device_, 2 * bytes);
    if (larger) {
      memory = std::move(*larger);
    } else {
      device_.give_up(larger.error());
    }
    return larger.has_value();
  };
  if (!at_least(asked.drawn, n_draws * sizeof(DrawnOnDevice)) ||
      !at_least(asked.tops, n_tops * sizeof(TopOnDevice))) {
    return false;
  }
  const Status told = asked.told.make_room(n_draws * sizeof(DrawnOnDevice) + n_tops * sizeof(TopOnDevice));
  if (!told) device_.give_up(told.error());
  return told.has_value();
}

void DeviceDraws::tell(Asked& asked) {
  if (!asked.pending) return;
  asked.pending = false;
  device_.wait(asked.copied);
  const size_t n = asked.rows.size(), stride = static_cast<size_t>(asked.tops_stride);
  const auto* const all = reinterpret_cast<const DrawnOnDevice*>(asked.told.data());
  const auto* const tops =
      reinterpret_cast<const TopOnDevice*>(asked.told.data() + n * sizeof(DrawnOnDevice));
  const bool failed = !device_.status();
  for (size_t i = 0; i < n; ++i)
    asked.results[i] = failed ? SampleResult{} : result_of(asked.rows[i], all[i], tops + i * stride);
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
  device_.launch(TakeDrawnTokens{on_device, asked_[now_].drawn.as<const DrawnOnDevice>()},
                 Grid{(batch.n_tokens() + TakeDrawnTokens::kThreads - 1) / TakeDrawnTokens::kThreads});
}

}  // namespace penstock::cuda
