#include "server/mcp/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/spawn.h"

namespace penstock {
namespace {

struct Pipe {
  OwnedFd read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return errorf(ErrorCode::kIo, "a pipe cannot be made: {}", std::strerror(errno));
  return Pipe{OwnedFd(ends[0]), OwnedFd(ends[1])};
}

// Returns "NAME=VALUE" lines without secrets of this process.
std::vector<std::string> environment_of(const McpServerConfig& config) {
  std::vector<std::string> lines;
  for (const char* name :
       {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    const auto is_it = [name](const auto& pair) { return pair.first == name; };
    const bool replaced = std::ranges::any_of(config.env, is_it);
    if (value != nullptr && !replaced) lines.push_back(std::string(name) + "=" + value);
  }
  for (const auto& [name, value] : config.env) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string how_it_ended(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return fmt::format("ended with code {}", info.si_status);
  return fmt::format("was ended by signal {}", info.si_status);
}

}  // namespace

void OwnedFd::reset() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Result<ChildProcess> ChildProcess::start(const McpServerConfig& config) {
  ASSIGN_OR_RETURN(Pipe input, make_pipe());
  ASSIGN_OR_RETURN(Pipe output, make_pipe());
  ASSIGN_OR_RETURN(Pipe errors, make_pipe());
  SpawnFiles files;
  posix_spawn_file_actions_adddup2(files.get(), input.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(files.get(), output.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(files.get(), errors.write.get(), STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(files.get(), STDERR_FILENO + 1);
  const SpawnAttributes how;
  std::vector<std::string> command = {config.command}, environment = environment_of(config);
  command.insert(command.end(), config.args.begin(), config.args.end());
  ChildProcess child;
  const int error = posix_spawnp(&child.process_.id, command[0].c_str(), files.get(), how.get(),
                                 pointers_to(command).data(), pointers_to(environment).data());
  if (error != 0) {
    child.process_.id = 0;
    return errorf(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                  "{} cannot be started: {}", config.command, std::strerror(error));
  }
  child.input = std::move(input.write);
  child.output = std::move(output.read);
  child.errors = std::move(errors.read);
  for (const OwnedFd* fd : {&child.input, &child.output, &child.errors})
    fcntl(fd->get(), F_SETFL, fcntl(fd->get(), F_GETFL) | O_NONBLOCK);
  return child;
}

// Leaves the child waitable, so that its process and group id cannot be reused meanwhile.
bool ChildProcess::ends_within(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds kLook(5);
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    siginfo_t info{};
    const int looked =
        waitid(P_PID, static_cast<id_t>(process_.id), &info, WEXITED | WNOHANG | WNOWAIT);
    if ((looked == 0 && info.si_pid != 0) || (looked != 0 && errno != EINTR)) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kLook);
  }
}

std::string ChildProcess::end(std::chrono::milliseconds patience) {
  if (process_.id == 0) return "is not there";
  input.reset();
  if (!ends_within(patience)) {
    kill(-process_.id, SIGTERM);
    ends_within(patience);
  }
  kill(-process_.id, SIGKILL);  // the whole process group
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(process_.id), &info, WEXITED) != 0 && errno == EINTR) {
  }
  process_.id = 0;
  return how_it_ended(info);
}

}  // namespace penstock
