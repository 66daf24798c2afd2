#include "cli/console/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "cli/console/exit_codes.h"

namespace penstock {
namespace {

bool colours() { return stderr_is_terminal() && std::getenv("NO_COLOR") == nullptr; }

std::atomic<bool> interrupt_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// A pipe that the signal handler writes to. wait_for_line() polls it too: the handler may run in
// another thread, or before the read that it should interrupt has started.
int wake_pipe[2] = {-1, -1};

void on_interrupt(int) {
  if (interrupt_flag.exchange(true)) _exit(kExitInterrupted);
  const int before = errno;
  [[maybe_unused]] const ssize_t written =
      write(wake_pipe[1], "", 1);  // fails if the pipe is full, which wakes as well
  errno = before;
}

}  // namespace

int fail(const Error& error) {
  fmt::print(stderr, "{} {}\n", bold("penstock:"), error.message);
  return exit_code(error.code);
}

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

std::string dim(std::string_view text) {
  return colours() ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}
std::string bold(std::string_view text) {
  return colours() ? fmt::format("\x1b[1m{}\x1b[0m", text) : std::string(text);
}

std::string format_bytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  const int decimals = unit == 0 || bytes >= 100 ? 0 : bytes >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressBar::update(int64_t done, int64_t total, std::string_view note) {
  if (!stderr_is_terminal() || total <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (done < total && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const double fraction =
      std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(fraction * kWidth);
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3.0f} % {}", label_, std::string(filled, '#'),
             std::string(kWidth - filled, ' '), fraction * 100, note);
  std::fflush(stderr);
}

void install_interrupt_handler() {
  if (wake_pipe[0] < 0 && pipe2(wake_pipe, O_NONBLOCK | O_CLOEXEC) != 0)
    wake_pipe[0] = wake_pipe[1] = -1;
  struct sigaction action = {};
  // without SA_RESTART, so that a blocking read returns with EINTR
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_flag.load(); }

void reset_interrupt() {
  char bytes[16];
  while (read(wake_pipe[0], bytes, sizeof bytes) > 0) {
  }
  interrupt_flag.store(false);
}

bool wait_for_line() {
  if (isatty(STDIN_FILENO) == 0) return true;
  // poll() ignores negative descriptors
  pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {wake_pipe[0], POLLIN, 0}};
  while (!interrupted()) {
    if (poll(sources, 2, -1) > 0 && sources[0].revents != 0) return true;
  }
  return false;
}

}  // namespace penstock
