// A program that is started here and spoken to over its standard input and output.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/result.h"
#include "server/mcp/mcp_config.h"

namespace penstock {

// A descriptor that is closed with it; -1: none.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() { reset(); }
  int get() const { return fd_; }
  void reset();

 private:
  int fd_ = -1;
};

// Has a process group of its own, no descriptors of this process, and an environment of its own.
class ChildProcess {
 public:
  // Errors: kNotFound, kIo.
  static Result<ChildProcess> start(const McpServerConfig& config);

  ChildProcess(ChildProcess&& other) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() { end({}); }

  // Ends the whole group and waits for the program: its input is closed, after `patience` it gets
  // SIGTERM, after as long again everything of the group gets SIGKILL. Returns how it ended, for a
  // message.
  std::string end(std::chrono::milliseconds patience);

  // Descriptors of this side, which do not block.
  OwnedFd input, output, errors;

 private:
  ChildProcess() = default;
  bool ends_within(std::chrono::milliseconds time) const;
  struct Process {
    pid_t id = 0;
    Process() = default;
    Process(Process&& other) noexcept : id(std::exchange(other.id, 0)) {}
  } process_;
};

}  // namespace penstock
