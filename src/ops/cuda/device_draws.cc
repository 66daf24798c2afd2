#include "ops/cuda/device_draws.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "ops/cuda/cuda_ops.h"

namespace penstock::cuda {

namespace {

static_assert(static_cast<int>(LogitEdit::Kind::kSet) == 0 &&
              static_cast<int>(LogitEdit::Kind::kAdd) == 1 &&
              static_cast<int>(LogitEdit::Kind::kPenalize) == 2);

constexpr float kInf = std::numeric_limits<float>::infinity();

void describe(std::span<const SampleRow> rows, int n_mask_words, DescribedDraws& all) {
  all.draws.clear(), all.edits.clear(), all.masks.clear();
  all.on_device = {.n = static_cast<int32_t>(rows.size())};
  for (const SampleRow& row : rows) {
    DrawOnDevice draw{};
    draw.row = row.row, draw.mask = -1;
    draw.edits = static_cast<int32_t>(all.edits.size()), draw.n_edits = row.n_edits;
    draw.temperature = row.temperature, draw.u = row.u;
    draw.least_x = row.min_p > 0 ? std::log(row.min_p) : -kInf;
    draw.top_k = row.top_k, draw.top_p = row.top_p;
    draw.report = row.report, draw.likeliest = row.likeliest, draw.n_top = row.n_top;
    all.on_device.tops_stride = std::max(all.on_device.tops_stride, row.n_top);
    for (const LogitEdit& edit : std::span(row.edits, static_cast<size_t>(row.n_edits)))
      all.edits.push_back({edit.token, static_cast<uint16_t>(edit.kind), edit.phase, edit.value});
    if (row.mask != nullptr) {
      PENSTOCK_CHECK(n_mask_words > 0);
      draw.mask = static_cast<int64_t>(all.masks.size());
      all.masks.insert(all.masks.end(), row.mask, row.mask + n_mask_words);
    }
    all.draws.push_back(draw);
  }
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
  for (int i = 0; i < drawn.n_top; ++i)
    row.top[i] = {top[i].token, top[i].raw_logit - log_sum, i + 1};
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

const DrawsOnDevice* DeviceDraws::bring() {
  static_assert(sizeof(DrawsOnDevice) % alignof(DrawOnDevice) == 0 &&
                sizeof(DrawOnDevice) % alignof(EditOnDevice) == 0 &&
                sizeof(EditOnDevice) % alignof(uint32_t) == 0);
  const size_t draws_at = sizeof(DrawsOnDevice),
               edits_at = draws_at + described_.draws.size() * sizeof(DrawOnDevice),
               masks_at = edits_at + described_.edits.size() * sizeof(EditOnDevice),
               bytes = masks_at + described_.masks.size() * sizeof(uint32_t);
  auto* const to = scratch<std::byte>(bytes);
  if (to == nullptr) return nullptr;
  const Result<std::span<std::byte>> staged = staged_.next(bytes);
  if (!staged) return device_.give_up(staged.error()), nullptr;
  DrawsOnDevice all = described_.on_device;
  all.draws = reinterpret_cast<const DrawOnDevice*>(to + draws_at);
  all.edits = reinterpret_cast<const EditOnDevice*>(to + edits_at);
  all.masks = reinterpret_cast<const uint32_t*>(to + masks_at);
  std::memcpy(staged->data(), &all, sizeof all);
  lay_behind(lay_behind(lay_behind(staged->data() + draws_at, described_.draws), described_.edits),
             described_.masks);
  staged_.send(to);
  return reinterpret_cast<const DrawsOnDevice*>(to);
}

bool DeviceDraws::ask(std::span<const SampleRow> rows, std::span<SampleResult> results,
                      int n_mask_words) {
  now_ = 1 - now_;
  Asked& asked = asked_[now_];
  tell(asked);
  describe(rows, n_mask_words, described_);
  DrawsOnDevice& on_device = described_.on_device;
  if (!make_room(asked, rows.size(), rows.size() * static_cast<size_t>(on_device.tops_stride)))
    return false;
  asked.rows.assign(rows.begin(), rows.end());
  asked.results = results;
  asked.tops_stride = on_device.tops_stride;
  asked.step = ended_ ? last_ticket_ : last_ticket_ + 1;
  asked.copied = 0;
  asked.pending = true;
  on_device.tokens = asked.tokens.as<int32_t>();
  on_device.drawn = reinterpret_cast<DrawnOnDevice*>(asked.told.data());
  on_device.tops =
      reinterpret_cast<TopOnDevice*>(asked.told.data() + rows.size() * sizeof(DrawnOnDevice));
  return true;
}

void DeviceDraws::sample(Tensor logits, std::span<const SampleRow> rows,
                         std::span<SampleResult> results) {
  if (rows.empty() || !ask(rows, results, (logits.cols + 31) / 32)) return;
  if (const DrawsOnDevice* const on_device = bring(); on_device != nullptr)
    launch(logits, on_device, static_cast<int>(rows.size()));
  asked_[now_].copied = device_.mark();
}

void DeviceDraws::launch(Tensor logits, const DrawsOnDevice* on_device, int n) {
  const auto rows = static_cast<size_t>(n), cols = static_cast<size_t>(logits.cols);
  auto* const edited = scratch<float>(rows * cols);
  auto* const piece_sums = scratch<double>(rows * static_cast<size_t>(draw_pieces(logits.cols)));
  const Grid grid{n, 1, Draw::kSharedBytes};
#ifdef PENSTOCK_CUDA_EMULATION
  if (alone_ && device_.status()) {
    // DrawAlone runs on the host and reads the uploaded descriptions.
    device_.wait(device_.mark());
    return Emulated<DrawAlone>::launch({rows_of(logits), on_device, edited, piece_sums}, grid);
  }
#endif
  constexpr int kMany = 16 << 10;
  if (logits.cols < kMany) {
    device_.launch(Draw{rows_of(logits), on_device, edited, piece_sums}, grid);
  } else {
    device_.launch(DrawLong{rows_of(logits), on_device, edited, piece_sums}, grid);
  }
}

// Ensures room for the results of a call. Returns false after a failure of the device.
bool DeviceDraws::make_room(Asked& asked, size_t n_draws, size_t n_tops) {
  if (asked.tokens.bytes() < n_draws * sizeof(int32_t)) {
    Result<Memory> larger = Memory::make(device_, 2 * n_draws * sizeof(int32_t));
    if (!larger) return device_.give_up(larger.error()), false;
    asked.tokens = std::move(*larger);
  }
  const Status told =
      asked.told.make_room(n_draws * sizeof(DrawnOnDevice) + n_tops * sizeof(TopOnDevice));
  if (!told) device_.give_up(told.error());
  return told.has_value();
}

void DeviceDraws::tell(Asked& asked) {
  if (!asked.pending) return;
  asked.pending = false;
  device_.wait(asked.copied != 0 ? asked.copied : device_.mark());
  const size_t n = asked.rows.size(), stride = static_cast<size_t>(asked.tops_stride);
  const auto* const all = reinterpret_cast<const DrawnOnDevice*>(asked.told.data());
  const auto* const tops =
      reinterpret_cast<const TopOnDevice*>(asked.told.data() + n * sizeof(DrawnOnDevice));
  const bool failed = !device_.status();
  for (size_t i = 0; i < n; ++i)
    asked.results[i] =
        failed ? SampleResult{} : result_of(asked.rows[i], all[i], tops + i * stride);
}

StepTicket DeviceDraws::end_step() {
  ended_ = true;
  last_ticket_ = device_.mark();
  for (Asked& asked : asked_)
    if (asked.pending && asked.copied == 0) asked.copied = last_ticket_;
  return last_ticket_;
}

void DeviceDraws::wait(StepTicket ticket) {
  device_.wait(ticket);
  for (Asked& asked : asked_)
    if (asked.step <= ticket) tell(asked);
}

const DescribedDraws& DeviceDraws::begin_step(const Batch& batch) {
  ended_ = false;
  before_ = asked_[now_].tokens.as<const int32_t>();
  if (batch.draws.empty() || !ask(batch.draws, batch.drawn, 0)) describe({}, 0, described_);
  return described_;
}

}  // namespace penstock::cuda
