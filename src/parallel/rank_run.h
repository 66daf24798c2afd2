// The ranks that compute one model together, as rank 0 sees them: processes that it has started on
// this host (child_ranks.h), or that mpirun or srun has started with it, on this host and others.
#pragma once
#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"

namespace penstock {

class RankRun {
 public:
  virtual ~RankRun() = default;  // ends the run
  // Rank 0's communicator.
  virtual Communicator& communicator() = 0;
  // Number of ranks on this host.
  virtual int n_here() const = 0;
  // Rank 0's CPUs; empty: all that this process may use.
  virtual std::vector<int> cpus() const = 0;
};

// Index of a run among several that one process has, each with as many ranks: they divide the
// host's CPUs among them.
struct RunPlace {
  int index = 0, count = 1;
};

// Starts n_ranks - 1 other ranks, or joins those that MPI has started with this process. Errors:
// kInvalidArgument when MPI has started another number of ranks; those of ChildRanks::start() and
// enter_mpi().
Result<std::unique_ptr<RankRun>> start_ranks(int n_ranks, const RunPlace& among = {});

// Rank and number of ranks of this process in MPI, from the environment that OpenMPI's mpirun or
// Slurm's srun --mpi=pmix sets; nothing when there is one process only.
struct MpiPlace {
  int rank, size;
};
std::optional<MpiPlace> mpi_place();

// A rank's share of its host.
struct HostShare {
  int n_here;  // ranks on this host
  // this rank's CPUs: ranks that may use the same CPUs divide them among them
  std::vector<int> cpus;
};
// Divides each host among its ranks. All ranks call it.
Result<HostShare> share_host(Communicator& ranks);

}  // namespace penstock
