#include "engine/ranks/stage_steps.h"

namespace penstock {
namespace {

std::span<float> floats_of(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

size_t stream_bytes(const Batch& batch, int dim) {
  return sizeof(float) * static_cast<size_t>(dim) * static_cast<size_t>(batch.n_tokens());
}

}  // namespace

Status StageSteps::run(const Batch& batch) {
  RETURN_IF_ERROR(take_input(batch));
  model_.submit(batch, floats_of(input_));
  model_.wait();
  return give_output(batch);
}

Status StageSteps::take_input(const Batch& batch) {
  if (before_ < 0) return ranks_.status();
  RETURN_IF_ERROR(ranks_.receive_from(before_, input_));
  if (const size_t expected = stream_bytes(batch, model_.model().stage_input_dim());
      input_.size() != expected) {
    ranks_.fail(fmt::format("rank {} of {}: expected {} bytes from rank {} for a step, got {}", ranks_.rank(),
                            ranks_.size(), expected, before_, input_.size()));
  }
  return ranks_.status();
}

Status StageSteps::give_output(const Batch& batch) {
  if (behind_ < 0) return ranks_.status();
  output_.resize(stream_bytes(batch, model_.model().stage_output_dim()));
  model_.read_stream(floats_of(output_));
  return ranks_.send_to(output_, behind_);
}

}  // namespace penstock
