// A child process that communicates over standard input and output.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/result.h"
#include "server/mcp/mcp_config.h"

namespace penstock {

// A file descriptor, closed by the destructor; -1: none.
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

// The child has its own process group and environment and inherits no other descriptors.
class ChildProcess {
 public:
  // Errors: kNotFound, kIo.
  static Result<ChildProcess> start(const McpServerConfig& config);

  ChildProcess(ChildProcess&& other) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() { end({}); }

  // Ends the process group and waits for the child: closes its input, sends SIGTERM after
  // `patience`, and SIGKILL to the group after as long again. Returns how the child ended, for a
  // message.
  std::string end(std::chrono::milliseconds patience);

  // this side's descriptors, non-blocking
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
