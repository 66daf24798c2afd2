// A rank beside rank 0: it loads its share of the model and computes what rank 0 tells it, until rank 0 ends the run.
//
// How a run begins, on all ranks: rank 0 tells the version and the configuration (tell_config); all load their shares and compare
// what they have (agree); rank 0 plans the cache for all and tells its blocks (share_blocks); then come RankCommands.
// With a pipeline the ranks form groups first, and rank 0 hears and tells each of the others by itself (pipeline_start.h).
#pragma once
#include <vector>

#include "draft/drafter.h"
#include "engine/ranks/rank_messages.h"
#include "model/model.h"
#include "parallel/communicator.h"
#include "parallel/rank_run.h"

namespace penstock {

// What the ranks' model is for: to be stepped by an engine, or states.
enum class RankTask : uint8_t { kText, kStates };

struct RankPlace {
  int rank = 1, size = 2;
  int segment = -1;       // file descriptor of make_shm_segment()
  int parent = 0;         // rank 0's process; it ends with that
  std::vector<int> cpus;  // to stay on; empty: all
};

// Returns when rank 0 has ended the run. Errors: those of loading, and why the run has failed.
Status serve_rank(Communicator& ranks);
// The same of a process that rank 0 has started beside itself.
Status serve_rank(const RankPlace& place);
// The same of a process that MPI has started. REQUIRES: a rank above 0.
Status serve_rank(const MpiPlace& place);

// --- Rank 0's side of the beginning

// Whether several ranks can do what the configuration asks for. Errors: kInvalidArgument, kUnsupported.
Status check_ranks(const EngineConfig& config);
// Drafters that take the target's matrices of the vocabulary find them whole on rank 0, and then all ranks have them.
bool cuts_vocabulary(const EngineConfig& config);
// This rank's share of the model, packed before where the configuration keeps that.
Result<std::unique_ptr<Model>> load_share(const WeightSource& source, Ops& ops, const EngineConfig& config,
                                          Stage stage, const Model::Progress& progress);
// REQUIRES: a resolved config whose model is a path.
Status tell_config(Communicator& ranks, const EngineConfig& config, RankTask task);

// For the DraftTarget of rank 0's share. ranks: null where there is this one only. Errors: those of ExitPasses, exit_layers().
Result<AnnounceBatch> announcer(RankRun* ranks, const EngineConfig& config, const WeightSource& source,
                                const Model& model);

// --- Both

// Of the backend with which a rank takes sums.
OpsConfig rank_ops(const EngineConfig& config, Communicator& ranks);
// The fingerprint is that of rank 0. Error, on all ranks: which rank has another one.
Status agree(Communicator& ranks, uint64_t fingerprint);
// n_blocks = rank 0's.
Status share_blocks(Communicator& ranks, std::vector<int>& n_blocks);

}  // namespace penstock
