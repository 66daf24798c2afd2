#include "engine/ranks/rank_worker.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "base/log.h"
#include "base/thread_pool.h"
#include "draft/early_exit.h"
#include "engine/compute/cache_types.h"
#include "engine/compute/fingerprint.h"
#include "engine/compute/step_model.h"
#include "engine/ranks/exit_passes.h"
#include "engine/ranks/pipeline_start.h"
#include "engine/ranks/shared_model.h"
#include "engine/ranks/stage_steps.h"
#include "engine/ranks/state_ranks.h"
#include "formats/lora.h"
#include "formats/weight_source.h"
#include "model/sources/expert_file.h"
#include "model/sources/packed_cache.h"
#include "model/sources/quantizing_source.h"
#include "parallel/child_ranks.h"
#include "penstock/version.h"

namespace penstock {
namespace {

constexpr std::string_view kDraftersWithVocabulary[] = {"medusa", "eagle3", "mtp"};

// Makes this rank's error the error of all ranks; the message names the rank.
Status failed(Communicator& ranks, const Error& error) {
  ranks.fail(fmt::format("rank {} of {}: {}", ranks.rank(), ranks.size(), error.message),
             error.code);
  return ranks.status();
}

// Ends the process if the run has failed and this rank does not notice it by
// itself.
void leave_when_failed(const Communicator& ranks, const std::stop_token& stop) {
  constexpr auto kLook = std::chrono::milliseconds(100),
                 kPatience = std::chrono::milliseconds(2000);
  for (auto seen = std::chrono::milliseconds(0); !stop.stop_requested();
       std::this_thread::sleep_for(kLook)) {
    if (ranks.status()) continue;
    seen += kLook;
    if (seen < kPatience) continue;
    log().error("rank {} of {}: {}", ranks.rank(), ranks.size(), ranks.status().error().message);
    _exit(1);
  }
}

struct Told {
  RankTask task;
  EngineConfig config;
};

Result<Told> hear_config(Communicator& ranks) {
  std::vector<std::byte> bytes;
  RETURN_IF_ERROR(broadcast_message(ranks, bytes, 0));
  MessageReader message(bytes);
  if (const std::string version = message.text(); version != kVersion) {
    return errorf(ErrorCode::kInvalidArgument, "it is penstock {}, rank 0 is {}", kVersion,
                  version);
  }
  const auto task = message.value<RankTask>();
  return Told{task, read_config_message(message)};
}

class RankWorker {
 public:
  explicit RankWorker(Communicator& ranks) : ranks_(ranks) {}

  Status load(const EngineConfig& config) {
    ASSIGN_OR_RETURN(auto source, open_weights(config.model));
    if (!config.quantize.empty()) {
      ASSIGN_OR_RETURN(source,
                       make_quantizing_source(std::move(source), config.quantize, config.threads));
    }
    ASSIGN_OR_RETURN(const CacheTypes types, cache_types(config));
    grid_ = grid_of(config);
    if (grid_.stages > 1) RETURN_IF_ERROR(ranks_.form_groups(grid_.tensor));
    ASSIGN_OR_RETURN(auto ops, make_ops(config.backend, rank_ops(config, ranks_)));
    ASSIGN_OR_RETURN(auto model,
                     load_share(*source, *ops, config, grid_.stage_of(ranks_.rank()), {}));
    if (config.spec == "early-exit") {
      ASSIGN_OR_RETURN(drafts_, open_early_exit(config, {model.get(), ops.get(), source.get()}));
      if (grid_.stages > 1) {
        ASSIGN_OR_RETURN(exit_passes_,
                         ExitPasses::make(ranks_, grid_, *source, *model, drafts_.n_layers));
      }
    }
    std::vector<int> n_blocks;
    RETURN_IF_ERROR(hear_blocks(fingerprint_of(*source, config, ops->name()), *model, n_blocks));
    CacheSpec own = model->cache_spec(types, config.block_size);
    own.longest = config.max_model_len;
    ASSIGN_OR_RETURN(auto cache, ops->make_cache(own, n_blocks));
    if (grid_.stages > 1) {
      RETURN_IF_ERROR(tell_sizes(ranks_, sizes_of(*model, *cache)));
    } else {
      ASSIGN_OR_RETURN(sizes_, exchange_sizes(ranks_, *model, *cache));
    }
    model_ = std::make_unique<LoadedModel>(std::move(source), std::move(ops), std::move(model),
                                           std::move(cache));
    steps_.emplace(ranks_, grid_, *model_);
    return {};
  }

  // Carries out commands until rank 0 ends the run.
  Status serve() {
    for (bool ended = false; !ended;) {
      RETURN_IF_ERROR(hear_command());
      MessageReader message(bytes_);
      ended = carry_out(message.value<RankCommand>(), message);
    }
    return {};
  }

 private:
  Status hear_command() {
    const Communicator::Uncounted idle(ranks_);
    return grid_.stages > 1 ? ranks_.receive_from(0, bytes_) : broadcast_message(ranks_, bytes_, 0);
  }

  Status hear_blocks(uint64_t fingerprint, const Model& model, std::vector<int>& n_blocks) {
    if (grid_.stages > 1) {
      RETURN_IF_ERROR(
          tell_share(ranks_, {fingerprint, model.weight_bytes() - model.offloaded_bytes()}));
      return penstock::hear_blocks(ranks_, n_blocks);
    }
    RETURN_IF_ERROR(agree(ranks_, fingerprint));
    return share_blocks(ranks_, n_blocks);
  }

  // Carries out a command. Returns true if it was the last.
  bool carry_out(RankCommand command, MessageReader& message) {
    switch (command) {
      case RankCommand::kEnd: return true;
      case RankCommand::kStep: {
        const BatchMessage step = read_batch(message);
        (void)steps_->run(step.batch);  // a failed run is noticed at the next command
        break;
      }
      case RankCommand::kDraft: {
        const BatchMessage draft = read_batch(message);
        compute_draft(draft.batch);
        break;
      }
      case RankCommand::kMoveTokens: {
        const int group = message.value<int>();
        const auto from = message.values<int32_t>();
        model_->move_tokens(group, from, message.values<int32_t>());
        break;
      }
      case RankCommand::kReadBlock: {
        const int group = message.value<int>();
        show_block(group, message.value<BlockId>());
        break;
      }
      case RankCommand::kWriteBlock: {
        const int group = message.value<int>();
        const auto block = message.value<BlockId>();
        model_->write_block(group, block, own_part(group, message.values<std::byte>()));
        break;
      }
      case RankCommand::kPutAdapter: {
        const int slot = message.value<int>();
        const auto fingerprint = message.value<uint64_t>();
        const Status put = put_adapter(slot, fingerprint, message.text());
        if (grid_.stages > 1) {
          MessageWriter reply;
          write_status(put, reply);
          (void)ranks_.send_to(reply.bytes(), 0);
        } else {
          (void)agree_on(ranks_, put);
        }
        break;
      }
      case RankCommand::kDropAdapter: model_->drop_adapter(message.value<int>()); break;
      case RankCommand::kKeepTaps: steps_->keep_taps(message.values<int>()); break;
      case RankCommand::kMakeCache: PENSTOCK_CHECK(false);  // for StateWorker only
    }
    return false;
  }

  void compute_draft(const Batch& batch) {
    if (exit_passes_ != nullptr) return exit_passes_->run(batch, *model_);
    const Model& model = drafts_.light ? *drafts_.light : model_->model();
    model.forward(batch, model_->cache(), model_->ops(), {.n_layers = drafts_.n_layers});
  }

  Status put_adapter(int slot, uint64_t fingerprint, const std::string& path) {
    ASSIGN_OR_RETURN(const LoraAdapter adapter, open_lora(path));
    if (lora_fingerprint(adapter) != fingerprint)
      return errorf(ErrorCode::kInvalidArgument, "{}: the adapter has changed since it was loaded",
                    path);
    return model_->put_adapter(slot, adapter);
  }

  int64_t bytes_of(int rank, int group) const {
    return sizes_[static_cast<size_t>(rank)].block_bytes[static_cast<size_t>(group)];
  }

  std::span<const std::byte> own_part(int group, std::span<const std::byte> block) const {
    if (grid_.stages > 1) return block;  // only this rank's part was sent
    int64_t first = 0;
    for (int rank = 0; rank < ranks_.rank(); ++rank) first += bytes_of(rank, group);
    return block.subspan(static_cast<size_t>(first),
                         static_cast<size_t>(bytes_of(ranks_.rank(), group)));
  }

  // Sends a block to rank 0, after all earlier commands.
  void show_block(int group, BlockId block) {
    if (grid_.stages > 1) {
      block_.resize(static_cast<size_t>(model_->block_bytes(group)));
      model_->read_block(group, block, block_);
      (void)ranks_.send_to(block_, 0);
      return;
    }
    for (int rank = 1; rank < ranks_.size(); ++rank) {
      block_.resize(static_cast<size_t>(bytes_of(rank, group)));
      if (rank == ranks_.rank()) model_->read_block(group, block, block_);
      (void)ranks_.broadcast(block_, rank);
    }
  }

  Communicator& ranks_;
  std::vector<std::byte> bytes_, block_;
  RankGrid grid_;
  std::vector<ShareSizes> sizes_;  // without a pipeline
  std::unique_ptr<LoadedModel> model_;
  EarlyExit drafts_;
  std::unique_ptr<ExitPasses> exit_passes_;  // with a pipeline
  std::optional<StageSteps> steps_;
};

}  // namespace

Status check_ranks(const EngineConfig& config) {
  for (const auto& [name, n] : {std::pair{"tensor_parallel_size", config.tensor_parallel_size},
                                {"pipeline_parallel_size", config.pipeline_parallel_size}})
    if (n < 1)
      return errorf(ErrorCode::kInvalidArgument, "{}: expected at least 1, got {}", name, n);
  if (!wire_type(config.rank_wire_dtype)) {
    return errorf(ErrorCode::kInvalidArgument, "rank_wire_dtype: expected f32 or bf16, got {}",
                  config.rank_wire_dtype);
  }
  const bool pipeline = config.pipeline_parallel_size > 1;
  const int64_t n_ranks = int64_t{config.tensor_parallel_size} * config.pipeline_parallel_size;
  if (n_ranks > kMaxRanks) {
    return errorf(
        ErrorCode::kInvalidArgument, "{}: expected 1 to {}, got {}",
        pipeline ? "tensor_parallel_size times pipeline_parallel_size" : "tensor_parallel_size",
        kMaxRanks, n_ranks);
  }
  return {};
}

bool cuts_vocabulary(const EngineConfig& config) {
  return std::ranges::find(kDraftersWithVocabulary, config.spec) ==
         std::end(kDraftersWithVocabulary);
}

Result<std::unique_ptr<Model>> load_share(const WeightSource& source, Ops& ops,
                                          const EngineConfig& config, Stage stage,
                                          const Model::Progress& progress) {
  ASSIGN_OR_RETURN(const auto folder, packed_cache_folder(config.packed_cache));
  const PackedCache cache(folder);
  PackedUse packed{folder.empty() ? nullptr : &cache, config.quantize, {}};
  if (config.experts_offload) {
    ASSIGN_OR_RETURN(packed.experts_folder, expert_folder(config.packed_cache));
  }
  return Model::load_shard(source, ops, progress, {cuts_vocabulary(config), stage, packed});
}

Result<AnnounceBatch> announcer(RankRun* ranks, const EngineConfig& config,
                                const WeightSource& source, const Model& model) {
  if (ranks == nullptr || config.spec != "early-exit") return AnnounceBatch();
  Communicator& communicator = ranks->communicator();
  const RankGrid grid = grid_of(config);
  if (grid.stages > 1) {
    ASSIGN_OR_RETURN(const int n_layers, exit_layers(config, model.config()));
    ASSIGN_OR_RETURN(auto made, ExitPasses::make(communicator, grid, source, model, n_layers));
    const std::shared_ptr<ExitPasses> passes = std::move(made);
    return [passes](const Batch& batch) { return passes->begin(batch); };
  }
  return [&communicator](const Batch& batch) {
    MessageWriter message;
    message.value(RankCommand::kDraft);
    write_batch(batch, message);
    (void)broadcast_message(communicator, message.bytes(), 0);
    return std::span<const float>();
  };
}

OpsConfig rank_ops(const EngineConfig& config, Communicator& ranks) {
  return {.n_threads = config.threads,
          .batch_invariant = config.batch_invariant,
          .thread_weight = config.thread_weight,
          .ranks = &ranks,
          .rank_wire = *wire_type(config.rank_wire_dtype),
          .eager = config.enforce_eager};
}

Status tell_config(Communicator& ranks, const EngineConfig& config, RankTask task) {
  MessageWriter message;
  message.text(kVersion);
  message.value(task);
  write_config(config, message);
  return broadcast_message(ranks, message.bytes(), 0);
}

Status agree(Communicator& ranks, uint64_t fingerprint) {
  uint64_t wanted = fingerprint;
  RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&wanted, 1)), 0));
  if (wanted != fingerprint) {
    ranks.fail(fmt::format("rank {} of {} has another model file or configuration than rank 0",
                           ranks.rank(), ranks.size()));
  }
  return ranks.barrier();
}

Status share_blocks(Communicator& ranks, std::vector<int>& n_blocks) {
  MessageWriter message;
  message.values(std::span<const int>(n_blocks));
  RETURN_IF_ERROR(broadcast_message(ranks, message.bytes(), 0));
  const auto told = MessageReader(message.bytes()).values<int>();
  n_blocks.assign(told.begin(), told.end());
  return {};
}

namespace {

template <class Worker>
Status work(Communicator& ranks, const EngineConfig& config) {
  Worker worker(ranks);
  const Status loaded = worker.load(config);
  if (!loaded) return ranks.status() ? failed(ranks, loaded.error()) : loaded;
  return worker.serve();
}

}  // namespace

Status serve_rank(Communicator& ranks) {
  const std::jthread watch([&](const std::stop_token& stop) { leave_when_failed(ranks, stop); });
  const auto told = hear_config(ranks);
  Status status;
  if (!told) {
    status = ranks.status() ? failed(ranks, told.error()) : tl::unexpected(told.error());
  } else if (told->task == RankTask::kStates) {
    status = work<StateWorker>(ranks, told->config);
  } else {
    status = work<RankWorker>(ranks, told->config);
  }
  return !status && status.error().message == kRunEnded ? Status() : status;
}

Status serve_rank(const RankPlace& place) {
  end_with_parent(place.parent);
  stay_on_cpus(place.cpus);
  CommunicatorConfig config;
  config.rank = place.rank, config.size = place.size, config.segment = place.segment;
  ASSIGN_OR_RETURN(const auto ranks, make_communicator("shm", config));
  return serve_rank(*ranks);
}

// Signals are ignored: whoever ends all processes of a job by a signal wants rank 0 to end it in
// order.
Status serve_rank(const MpiPlace& place) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  CommunicatorConfig config;
  config.rank = place.rank, config.size = place.size;
  ASSIGN_OR_RETURN(const auto ranks, make_communicator("mpi", config));
  ASSIGN_OR_RETURN(const HostShare share, share_host(*ranks));
  stay_on_cpus(share.cpus);
  return serve_rank(*ranks);
}

}  // namespace penstock
