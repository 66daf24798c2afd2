#include "engine/ranks/stage_steps.h"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

std::span<float> floats_of(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

size_t floats(int n_tokens, int dim) {
  return static_cast<size_t>(n_tokens) * static_cast<size_t>(dim);
}

}  // namespace

void StageSteps::keep_taps(std::span<const int> taps) {
  by_layer_.resize(taps.size());
  std::iota(by_layer_.begin(), by_layer_.end(), 0);
  const auto layer = [&](int place) { return taps[static_cast<size_t>(place)]; };
  std::ranges::stable_sort(by_layer_, {}, layer);
  const Shard::Range layers = model_.model().layers();
  // The last stage has the stream behind the last layer.
  const int n_layers = model_.model().config().n_layers, end = layers.first + layers.count;
  const auto is_own = [&](int tap) {
    return tap >= layers.first && (tap < end || (tap == n_layers && end == n_layers));
  };
  std::vector<int> own;
  n_before_ = 0;
  for (const int place : by_layer_) {
    n_before_ += layer(place) < layers.first;
    if (is_own(layer(place))) own.push_back(layer(place));
  }
  n_own_ = static_cast<int>(own.size());
  if (n_own_ > 0) model_.keep_states(own);
}

Status StageSteps::run(const Batch& batch) {
  n_tokens_ = batch.n_tokens();
  RETURN_IF_ERROR(take_input(batch));
  model_.submit(batch,
                floats_of(input_).first(floats(n_tokens_, model_.model().stage_input_dim())));
  model_.wait();
  if (behind_ >= 0) return give_output();
  join_taps();
  return ranks_.status();
}

Status StageSteps::take_input(const Batch& batch) {
  if (before_ < 0) return ranks_.status();
  RETURN_IF_ERROR(ranks_.receive_from(before_, input_));
  const Model& model = model_.model();
  const size_t expected =
      sizeof(float) *
      floats(batch.n_tokens(), model.stage_input_dim() + n_before_ * model.config().model_dim);
  if (input_.size() != expected) {
    ranks_.fail(fmt::format("rank {} of {}: expected {} bytes from rank {} for a step, got {}",
                            ranks_.rank(), ranks_.size(), expected, before_, input_.size()));
  }
  return ranks_.status();
}

// Assembles the output: the stream, then for every tap so far the streams of all tokens.
Status StageSteps::give_output() {
  const int dim = model_.model().config().model_dim;
  const size_t n_stream = floats(n_tokens_, model_.model().stage_output_dim());
  output_.resize(sizeof(float) * (n_stream + floats(n_tokens_, (n_before_ + n_own_) * dim)));
  float* out = floats_of(output_).data();
  model_.read_stream({out, n_stream});
  out += n_stream;
  for (int tap = 0; tap < n_before_ + n_own_; ++tap) {
    for (int token = 0; token < n_tokens_; ++token, out += dim)
      std::ranges::copy(tapped(tap, token), out);
  }
  return ranks_.send_to(output_, behind_);
}

// Returns the stream of a tap, numbered in the order of layers.
std::span<const float> StageSteps::tapped(int tap, int token) {
  const auto dim = static_cast<size_t>(model_.model().config().model_dim);
  if (tap >= n_before_)
    return model_.state(token).subspan(static_cast<size_t>(tap - n_before_) * dim, dim);
  const size_t first = floats(n_tokens_, model_.model().stage_input_dim()) +
                       floats(tap * n_tokens_ + token, static_cast<int>(dim));
  return floats_of(input_).subspan(first, dim);
}

void StageSteps::join_taps() {
  const auto dim = static_cast<size_t>(model_.model().config().model_dim);
  states_.resize(by_layer_.size() * dim * static_cast<size_t>(n_tokens_));
  for (int token = 0; token < n_tokens_; ++token) {
    const auto row =
        std::span(states_).subspan(static_cast<size_t>(token) * by_layer_.size() * dim);
    for (size_t tap = 0; tap < by_layer_.size(); ++tap) {
      const auto at =
          row.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(by_layer_[tap]) * dim);
      std::ranges::copy(tapped(static_cast<int>(tap), token), at);
    }
  }
}

std::span<const float> StageSteps::state(int token) {
  if (by_layer_.empty()) return model_.state(token);
  const size_t n = by_layer_.size() * static_cast<size_t>(model_.model().config().model_dim);
  return std::span(states_).subspan(static_cast<size_t>(token) * n, n);
}

}  // namespace penstock
