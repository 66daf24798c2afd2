// Colours and progress bars, only when stderr is a terminal (and NO_COLOR is not set).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

bool stdout_is_terminal();
bool stderr_is_terminal();

// The text in dim or bold type on a terminal's stderr, unchanged elsewhere.
std::string dim(std::string_view text);
std::string bold(std::string_view text);

// "1.3 GiB", "812 KiB"
std::string format_bytes(double bytes);

// One line on stderr, redrawn at most ten times a second; silent when stderr is no terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();  // clears the line
  void update(int64_t done, int64_t total, std::string_view note = {});

 private:
  std::string label_;
  std::chrono::steady_clock::time_point last_{};
  bool drawn_ = false;
};

// True once Ctrl-C was pressed since the last reset; installing the handler makes Ctrl-C not end the program.
// A second Ctrl-C while the flag is set ends it with exit code 130.
void install_interrupt_handler();
bool interrupted();
void reset_interrupt();

// Waits until a line can be read from a terminal on stdin; false when Ctrl-C came first. At once true when stdin is none.
bool wait_for_line();

}  // namespace penstock
