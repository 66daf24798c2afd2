#include "parallel/child_ranks.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "base/spawn.h"
#include "parallel/host_cpus.h"

extern char** environ;

namespace penstock {
namespace {

std::vector<std::string>& rank_program() {
  static std::vector<std::string> command = {"/proc/self/exe"};
  return command;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

struct OpenFile {
  const int fd;
  ~OpenFile() { close(fd); }
};

Result<pid_t> spawn(int rank, int n_ranks, int segment, const std::vector<int>& cpus) {
  SpawnFiles files;
  posix_spawn_file_actions_addopen(files.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(files.get(), STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(files.get(), segment, kRankSegmentFd);
  posix_spawn_file_actions_addclosefrom_np(files.get(), kRankSegmentFd + 1);
  const SpawnAttributes how;
  std::vector<std::string> command = rank_program();
  for (const std::string& argument :
       {std::string("rank"), fmt::format("--segment={}", kRankSegmentFd),
        fmt::format("--rank={}", rank), fmt::format("--size={}", n_ranks),
        fmt::format("--parent={}", getpid())})
    command.push_back(argument);
  if (!cpus.empty()) command.push_back(fmt::format("--cpus={}", fmt::join(cpus, ",")));
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int error =
      posix_spawn(&process, arguments[0], files.get(), how.get(), arguments.data(), environ);
  if (error == 0) return process;
  return errorf(ErrorCode::kIo, "rank {} of {} cannot be started as {}: {}", rank, n_ranks,
                command[0], std::strerror(error));
}

}  // namespace

void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl()
}

void set_rank_program(std::vector<std::string> command) { rank_program() = std::move(command); }

Result<std::unique_ptr<RankRun>> ChildRanks::start(int n_ranks, const RunPlace& among) {
  ASSIGN_OR_RETURN(const int fd, make_shm_segment(n_ranks));
  const OpenFile segment{fd};
  std::unique_ptr<ChildRanks> ranks(new ChildRanks(among));
  CommunicatorConfig config;
  config.size = n_ranks, config.segment = segment.fd;
  ASSIGN_OR_RETURN(ranks->communicator_, make_communicator("shm", config));
  for (int rank = 1; rank < n_ranks; ++rank) RETURN_IF_ERROR(ranks->start_child(rank, segment.fd));
  return ranks;
}

std::vector<int> ChildRanks::cpus_of(int rank) const {
  const int n_ranks = communicator_->size();
  return cpus_of_rank(among_.index * n_ranks + rank, among_.count * n_ranks);
}

Status ChildRanks::start_child(int rank, int segment) {
  std::promise<Result<pid_t>> started;
  std::jthread parent([&, this, rank] {
    const Result<pid_t> process = spawn(rank, communicator_->size(), segment, cpus_of(rank));
    if (process) ++n_running_;
    started.set_value(process);  // after this, the arguments may be destroyed
    if (process) wait_for(rank, *process);
  });
  ASSIGN_OR_RETURN(const pid_t process, started.get_future().get());
  children_.push_back({process, std::move(parent)});
  return {};
}

// Waits for a child's end. Notices if it is stopped before it joins, since other ranks wait for it
// to join. Elapsed time is counted in polls of this process, as both may be stopped together.
void ChildRanks::wait_for(int rank, pid_t process) {
  constexpr std::chrono::milliseconds kLook(100);
  constexpr int kPatience = 50;  // in polls
  const auto fail = [&](const std::string& what) {
    if (!ending_)
      communicator_->fail(
          fmt::format("rank {} of {} (process {}) {}", rank, communicator_->size(), process, what));
  };
  int status = 0, n_looks = 0;
  for (bool is_stopped = false;;) {
    const pid_t changed =
        waitpid(process, &status, WUNTRACED | (is_stopped ? WCONTINUED | WNOHANG : 0));
    if (changed < 0 && errno == EINTR) continue;
    if (changed == 0) {
      std::this_thread::sleep_for(kLook);
      if (++n_looks != kPatience) continue;
      fail(fmt::format("has been stopped for {:.1f} s",
                       std::chrono::duration<double>(kPatience * kLook).count()));
      kill(process, SIGKILL);
    } else if (changed == process && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
      is_stopped = WIFSTOPPED(status);
      n_looks = 0;
    } else {
      break;
    }
  }
  fail(how_it_ended(status));
  --n_running_;
}

ChildRanks::~ChildRanks() {
  ending_ = true;
  if (communicator_ != nullptr) communicator_->fail(kRunEnded);
  constexpr std::chrono::milliseconds kPatience(3000), kLook(2);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (n_running_ > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kLook);
  // Children that have exited were not reaped yet, so their process ids are not
  // reused.
  if (n_running_ > 0)
    for (const Child& child : children_) kill(child.process, SIGKILL);
  children_.clear();  // waits for them
}

}  // namespace penstock
