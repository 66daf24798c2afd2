// MCP over the standard input and output of a program: a message is a line of JSON.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "server/mcp/child_process.h"
#include "server/mcp/connection.h"

namespace penstock {

// A thread of its own reads what the program writes: answers go to whoever waits for them, lines of
// its standard error to the log, a bounded number of them.
class StdioConnection final : public McpConnection {
 public:
  // Errors: of starting the program.
  static Result<std::unique_ptr<McpConnection>> open(const McpServerConfig& config,
                                                     McpNotices notices);
  ~StdioConnection() override;
  StdioConnection(const StdioConnection&) = delete;
  StdioConnection& operator=(const StdioConnection&) = delete;

  Result<McpJson> request(std::string_view method, const McpJson& params,
                          const McpWait& wait) override;
  Status notify(std::string_view method, const McpJson& params, const McpWait& wait) override;
  bool alive() const override { return !ended_; }
  void leave() override;

 private:
  // Lines of one of the program's outputs, as they come.
  struct Lines {
    std::string held;
    // Calls `take` for each whole line of what the descriptor has, but for a bounded part of it at
    // once; false: it is at its end, or a line has more than `most` bytes. cuts: such a line is
    // taken in parts instead.
    template <class Take>
    bool read(int fd, size_t most, bool cuts, Take&& take);
  };
  // Of what is written to the log in a minute, and how long the program's requests may hold up the
  // reading in it.
  struct Minute {
    std::chrono::steady_clock::time_point begin{};
    int n_logged = 0;
    std::chrono::steady_clock::duration answering{};
  };
  using Outcome = std::optional<Result<McpJson>>;

  StdioConnection(ChildProcess process, McpNotices notices, OwnedFd wake);
  void read_all();
  void take_line(std::string_view line);
  void log_line(std::string_view line);
  void answer(const McpJson& request);
  void look_at_minute();
  void end(const std::string& why);
  Status write(std::string_view line, const McpWait& wait);
  Status write_some(std::string_view& rest, const McpWait& wait);

  McpNotices notices_;
  OwnedFd wake_;  // an eventfd, which ends the reading
  std::timed_mutex writing_;
  ChildProcess process_;  // its input: with writing_; all else: of the thread
  std::mutex mutex_;
  std::condition_variable_any answered_;
  std::map<int64_t, Outcome> waiting_;  // by id, of whoever waits
  int64_t next_id_ = 1;
  std::string why_ended_;
  std::atomic<bool> ended_{false}, leaving_{false};
  std::atomic<bool> stuck_{false};  // it has left half a message in its input for too long
  Minute minute_;                   // of the thread
  std::thread thread_;
};

}  // namespace penstock
