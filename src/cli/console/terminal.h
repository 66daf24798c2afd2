// Colours and progress bars, only when stderr is a terminal (and NO_COLOR is not set).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

bool stdout_is_terminal();
bool stderr_is_terminal();

// Return the text in dim or bold type if stderr is a terminal, else unchanged.
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

// install_interrupt_handler() makes Ctrl-C set a flag instead of ending the program; a second
// Ctrl-C while the flag is set ends it with exit code 130. interrupted() returns the flag,
// reset_interrupt() clears it.
void install_interrupt_handler();
bool interrupted();
void reset_interrupt();

// Waits until a line can be read from stdin; returns false when Ctrl-C came first. Returns true
// immediately when stdin is no terminal.
bool wait_for_line();

}  // namespace penstock
