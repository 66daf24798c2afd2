// The ranks of one host that a process starts beside itself: rank 0 is the process, each other rank a child of it.
//
// A child is another run of the program (set_rank_program(), else this process' own file) with the arguments "rank --segment 3
// --rank R --size N --parent P". It has the shared memory as file 3 and no other but standard error, a process group of its own, so that a
// terminal's Ctrl-C is rank 0's alone, and the CPUs of its share.
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

// Why a run ends when its rank 0 does, which is no error of anybody.
inline constexpr const char* kRunEnded = "rank 0 has ended the run";

// What is started for a child, before the arguments above; for processes that are no penstock program. Before any ChildRanks.
void set_rank_program(std::vector<std::string> command);

// Has the kernel end this process when the one that started it, `parent`, has ended, however that was.
void end_with_parent(pid_t parent);

class ChildRanks final : public RankRun {
 public:
  // Starts ranks 1 to n_ranks - 1. Errors: those of make_shm_segment() and of starting programs.
  static Result<std::unique_ptr<RankRun>> start(int n_ranks, const RunPlace& among);
  // Ends the run: the children get a few seconds to leave by themselves.
  ~ChildRanks() override;

  // A child that ends before this does fails the run, with how it ended.
  Communicator& communicator() override { return *communicator_; }
  int n_here() const override { return communicator_->size(); }
  std::vector<int> cpus() const override { return cpus_of(0); }

 private:
  struct Child {
    pid_t process;
    std::jthread parent;  // starts it and waits for its end; to the kernel a thread is a child's parent
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
