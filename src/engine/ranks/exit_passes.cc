#include "engine/ranks/exit_passes.h"

#include <cstring>

#include "engine/ranks/rank_messages.h"
#include "model/load/stages.h"

namespace penstock {

Result<std::unique_ptr<ExitPasses>> ExitPasses::make(Communicator& ranks, const RankGrid& grid,
                                                     const WeightSource& source, const Model& model,
                                                     int n_layers) {
  const ModelConfig& config = model.config();
  ASSIGN_OR_RETURN(const auto stages, cut_stages(config, layer_bytes(source, config), grid.stages));
  int exit_stage = 0;  // stage of the last of these layers
  while (stages[static_cast<size_t>(exit_stage)].first +
             stages[static_cast<size_t>(exit_stage)].count <
         n_layers)
    ++exit_stage;
  const int last = grid.stages - 1, last_first = stages.back().first;
  if (exit_stage < last && config.stage_dim(n_layers) != config.stage_dim(last_first)) {
    return errorf(ErrorCode::kUnsupported,
                  "pipeline_parallel_size {} with spec early-exit: {} gives other features to each "
                  "layer, and those of layer {} are not with the output matrix",
                  grid.stages, config.arch, n_layers);
  }
  std::unique_ptr<ExitPasses> passes(new ExitPasses(ranks, n_layers));
  const int rank = ranks.rank(), stage = grid.stage_of(rank).index, column = rank % grid.tensor;
  passes->takes_part_ = stage <= exit_stage || stage == last;
  passes->before_ =
      stage == last ? grid.rank_of(std::min(exit_stage, last - 1), column) : grid.before(rank);
  passes->behind_ = stage == last ? -1 : stage == exit_stage ? column : grid.behind(rank);
  passes->input_dim_ = model.stage_input_dim();
  return passes;
}

std::span<const float> ExitPasses::begin(const Batch& batch) {
  MessageWriter message;
  message.value(RankCommand::kDraft);
  write_batch(batch, message);
  for (int rank = 1; rank < ranks_.size(); ++rank) (void)ranks_.send_to(message.bytes(), rank);
  return take_input(batch);
}

// Returns the input from the previous stage; zeros if the run has failed.
std::span<const float> ExitPasses::take_input(const Batch& batch) {
  if (before_ < 0) return {};
  input_.assign(static_cast<size_t>(batch.n_tokens()) * static_cast<size_t>(input_dim_), 0.0f);
  const auto bytes = std::as_writable_bytes(std::span(input_));
  if (!ranks_.receive_from(before_, message_)) return input_;
  if (message_.size() == bytes.size()) {
    std::memcpy(bytes.data(), message_.data(), bytes.size());
  } else {
    ranks_.fail(fmt::format("rank {} of {}: expected {} bytes from rank {} for a guess, got {}",
                            ranks_.rank(), ranks_.size(), bytes.size(), before_, message_.size()));
  }
  return input_;
}

void ExitPasses::run(const Batch& batch, LoadedModel& model) {
  if (!takes_part_) return;
  const std::span<const float> input = take_input(batch);
  if (!ranks_.status()) return;
  const StepOutputs made = model.model().forward(batch, model.cache(), model.ops(),
                                                 {.n_layers = n_layers_, .stage_input = input});
  if (behind_ < 0) return;
  output_.resize(static_cast<size_t>(made.stream.rows) * static_cast<size_t>(made.stream.cols));
  model.ops().read_rows(made.stream, output_);
  (void)ranks_.send_to(std::as_bytes(std::span(output_)), behind_);
}

}  // namespace penstock
