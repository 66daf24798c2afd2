#include "engine/ranks/state_ranks.h"

#include "base/check.h"
#include "engine/compute/fingerprint.h"
#include "engine/ranks/pipeline_start.h"
#include "engine/ranks/rank_worker.h"
#include "formats/weight_source.h"
#include "model/sources/quantizing_source.h"

namespace penstock {

StateRanks::StateRanks(std::unique_ptr<RankRun> run, const RankGrid& grid, LoadedModel& own)
    : run_(std::move(run)),
      own_(own),
      n_at_once_(grid.stages),
      steps_(run_->communicator(), grid, own) {}

StateRanks::~StateRanks() {
  message_.clear();
  message_.value(RankCommand::kEnd);
  send_to_all();
}

// Sends the message to all other ranks. After an error, calls return at once.
void StateRanks::send_to_all() {
  Communicator& ranks = run_->communicator();
  for (int rank = 1; rank < ranks.size(); ++rank) (void)ranks.send_to(message_.bytes(), rank);
}

Status StateRanks::make_cache(std::span<const int> n_blocks) {
  message_.clear();
  message_.value(RankCommand::kMakeCache);
  message_.values(n_blocks);
  send_to_all();
  Status made = make_state_cache(own_, n_blocks);
  Communicator& ranks = run_->communicator();
  std::vector<std::byte> reply;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    RETURN_IF_ERROR(ranks.receive_from(rank, reply));
    const Status other = read_status(reply);
    if (made && !other) made = other;
  }
  return made;
}

void StateRanks::tell(const Batch& batch) {
  message_.clear();
  message_.value(RankCommand::kStep);
  write_batch(batch, message_);
  send_to_all();
}

Status StateRanks::run(const Batch& batch) {
  RETURN_IF_ERROR(steps_.run(batch));
  return status();
}

Status make_state_cache(LoadedModel& model, std::span<const int> n_blocks) {
  model.set_cache(nullptr);
  const CacheSpec spec = model.model().cache_spec(KvDType::kF32, kStateBlockTokens);
  ASSIGN_OR_RETURN(auto cache, model.ops().make_cache(spec, n_blocks));
  model.set_cache(std::move(cache));
  return {};
}

Status StateWorker::load(const EngineConfig& config) {
  const RankGrid grid = grid_of(config);
  ASSIGN_OR_RETURN(auto source, open_weights(config.model));
  if (!config.quantize.empty()) {
    ASSIGN_OR_RETURN(source,
                     make_quantizing_source(std::move(source), config.quantize, config.threads));
  }
  if (grid.stages > 1) RETURN_IF_ERROR(ranks_.form_groups(grid.tensor));
  ASSIGN_OR_RETURN(auto ops, make_ops(config.backend, rank_ops(config, ranks_)));
  ASSIGN_OR_RETURN(auto model, Model::load_states(*source, *ops, grid.stage_of(ranks_.rank())));
  RETURN_IF_ERROR(
      tell_share(ranks_, {fingerprint_of(*source, config, ops->name()), model->weight_bytes()}));
  model_ =
      std::make_unique<LoadedModel>(std::move(source), std::move(ops), std::move(model), nullptr);
  steps_.emplace(ranks_, grid, *model_);
  return {};
}

Status StateWorker::serve() {
  std::vector<std::byte> bytes;
  while (true) {
    {
      const Communicator::Uncounted idle(ranks_);
      RETURN_IF_ERROR(ranks_.receive_from(0, bytes));
    }
    MessageReader message(bytes);
    const auto command = message.value<RankCommand>();
    if (command == RankCommand::kEnd) return {};
    if (command == RankCommand::kMakeCache) {
      MessageWriter reply;
      write_status(make_state_cache(*model_, message.values<int>()), reply);
      RETURN_IF_ERROR(ranks_.send_to(reply.bytes(), 0));
      continue;
    }
    PENSTOCK_CHECK(command == RankCommand::kStep);
    const BatchMessage step = read_batch(message);
    (void)steps_->run(step.batch);  // a failed run is noticed at the next command
  }
}

}  // namespace penstock
