// Ranks of one host as child processes: rank 0 is the process that starts them, each other rank a
// child of it.
//
// A child runs the program (set_rank_program(), else this process' own executable) with the
// arguments "rank --segment 3 --rank R --size N --parent P". Its open files are the shared memory,
// as descriptor 3, and standard error. It has a process group of its own, so that a terminal's
// Ctrl-C reaches rank 0 only, and stays on its share of the CPUs.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "parallel/communicator.h"
#include "parallel/rank_run.h"

namespace penstock {

inline constexpr int kRankSegmentFd = 3;

// Reason with which rank 0 ends a run at its regular end; it is not a failure.
inline constexpr const char* kRunEnded = "rank 0 has ended the run";

// Sets the command to start for a child, to which the arguments above are appended; for processes
// that are not the penstock program. Called before any ChildRanks is started.
void set_rank_program(std::vector<std::string> command);

// Has the kernel end this process when `parent`, the process that started it, ends in any way.
void end_with_parent(pid_t parent);

class ChildRanks final : public RankRun {
 public:
  // Starts ranks 1 to n_ranks - 1. Errors: those of make_shm_segment() and of starting programs.
  static Result<std::unique_ptr<RankRun>> start(int n_ranks, const RunPlace& among);
  // Ends the run: the children get a few seconds to exit by themselves.
  ~ChildRanks() override;

  // A child that exits before this is destroyed fails the run; the error says how it ended.
  Communicator& communicator() override { return *communicator_; }
  int n_here() const override { return communicator_->size(); }
  std::vector<int> cpus() const override { return cpus_of(0); }

 private:
  struct Child {
    pid_t process;
    // starts the child and waits for its end (for PDEATHSIG the thread is the parent)
    std::jthread parent;
  };
  explicit ChildRanks(const RunPlace& among) : among_(among) {}
  std::vector<int> cpus_of(int rank) const;
  Status start_child(int rank, int segment);
  void wait_for(int rank, pid_t process);

  const RunPlace among_;
  std::unique_ptr<Communicator> communicator_;
  std::atomic<bool> ending_ = false;
  std::atomic<int> n_running_ = 0;
  std::vector<Child> children_;
};

}  // namespace penstock
