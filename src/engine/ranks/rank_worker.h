// A rank other than rank 0: it loads its share of the model and carries out rank 0's commands until
// rank 0 ends the run.
//
// Start of a run, on all ranks: rank 0 sends the version and the configuration (tell_config); all
// load their shares and compare fingerprints (agree); rank 0 plans the cache for all and sends the
// numbers of blocks (share_blocks); then RankCommands follow. With a pipeline the ranks form groups
// first, and rank 0 exchanges messages with each other rank (pipeline_start.h).
#pragma once
#include <vector>

#include "draft/drafter.h"
#include "engine/ranks/rank_messages.h"
#include "model/model.h"
#include "parallel/communicator.h"
#include "parallel/rank_run.h"

namespace penstock {

// Purpose of the ranks' model: text (steps of an engine), or states (Embedder).
enum class RankTask : uint8_t { kText, kStates };

struct RankPlace {
  int rank = 1, size = 2;
  int segment = -1;  // file descriptor from make_shm_segment()
  // id of rank 0's process; this process ends when that one does
  int parent = 0;
  // CPUs that the rank's threads stay on; empty: all
  std::vector<int> cpus;
};

// Loads this rank's share and carries out rank 0's commands; returns when rank 0 has ended the run.
// Errors: those of loading, and the error for which the run has failed.
Status serve_rank(Communicator& ranks);
// Serves as a rank in a process that rank 0 has started on its host.
Status serve_rank(const RankPlace& place);
// Serves as a rank in a process that MPI has started. REQUIRES: place.rank > 0.
Status serve_rank(const MpiPlace& place);

// --- Rank 0's side of the start

// Checks whether several ranks can do what the configuration asks for. Errors: kInvalidArgument,
// kUnsupported.
Status check_ranks(const EngineConfig& config);
// Whether the embedding and output matrices are divided among the ranks. False with drafters that
// use the target's matrices, which need them whole on rank 0: then every rank has them whole.
bool cuts_vocabulary(const EngineConfig& config);
// Loads this rank's share of the model, from the packed cache when the configuration keeps one.
Result<std::unique_ptr<Model>> load_share(const WeightSource& source, Ops& ops,
                                          const EngineConfig& config, Stage stage,
                                          const Model::Progress& progress);
// Sends the program's version, the configuration and the task to all ranks. REQUIRES: a resolved
// config whose model is a path.
Status tell_config(Communicator& ranks, const EngineConfig& config, RankTask task);

// Returns DraftTarget::announce for a drafter on rank 0. ranks: null when there is only this one.
// Errors: those of ExitPasses::make() and exit_layers().
Result<AnnounceBatch> announcer(RankRun* ranks, const EngineConfig& config,
                                const WeightSource& source, const Model& model);

// --- Called by all ranks

// Configuration of a rank's backend, which computes all-reduces over `ranks`.
OpsConfig rank_ops(const EngineConfig& config, Communicator& ranks);
// Checks that all ranks have the same fingerprint. Error, on all ranks: the message names the rank
// whose fingerprint differs from rank 0's.
Status agree(Communicator& ranks, uint64_t fingerprint);
// Broadcasts n_blocks from rank 0.
Status share_blocks(Communicator& ranks, std::vector<int>& n_blocks);

}  // namespace penstock
