// The ranks that compute one model together, as rank 0 has them: processes that it has started beside itself on this host
// (child_ranks.h), or that mpirun or srun has started with it, on this host and others.
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
  // Of rank 0.
  virtual Communicator& communicator() = 0;
  // How many of the ranks share this host's memory.
  virtual int n_here() const = 0;
  // Rank 0's CPUs; empty: all that this process may use.
  virtual std::vector<int> cpus() const = 0;
};

// Which of several runs with as many ranks each, that one process has: they share its host's CPUs.
struct RunPlace {
  int index = 0, count = 1;
};

// Starts n_ranks - 1 others, or finds those that were started with this process. Errors: kInvalidArgument: MPI has started
// another number; those of starting them.
Result<std::unique_ptr<RankRun>> start_ranks(int n_ranks, const RunPlace& among = {});

// Which rank MPI has started this process as, by the environment that OpenMPI's mpirun or Slurm's srun --mpi=pmix gives it; none where
// there is one process only.
struct MpiPlace {
  int rank, size;
};
std::optional<MpiPlace> mpi_place();

// How the ranks of a run lie on their hosts, in the eyes of one of them.
struct HostShare {
  int n_here;             // ranks on this host
  std::vector<int> cpus;  // of this one: ranks that may use the same CPUs share them out
};
// All ranks call it.
Result<HostShare> share_host(Communicator& ranks);

}  // namespace penstock
