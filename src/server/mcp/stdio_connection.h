// MCP over a program's standard input and output: one line of JSON per message.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/mcp/child_process.h"
#include "server/mcp/connection.h"

namespace penstock {

// A thread reads the program's output: answers go to the waiting callers, lines of standard error
// (a limited number) to the log.
class StdioConnection final : public McpConnection {
 public:
  // Errors: those of starting the program.
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
  // Splits one of the program's outputs into lines.
  struct Lines {
    std::string held;
    // Reads a bounded amount from the descriptor and calls `take` for each complete line. cuts:
    // longer lines are taken in parts. false: end of file, or (without cuts) a line longer than
    // `most` bytes.
    template <class Take>
    bool read(int fd, size_t most, bool cuts, Take&& take);
  };
  // Limits per minute: lines written to the log, and time spent on answering the program's
  // requests.
  struct Minute {
    std::chrono::steady_clock::time_point begin{};
    int n_logged = 0;
    std::chrono::steady_clock::duration answering{};
  };
  using Outcome = std::optional<Result<McpJson>>;
  // An answer that does not show whose it is.
  struct Unclaimed {
    // Requests that waited when it came and have no answer yet; some may no longer wait for one.
    std::set<int64_t> askers;
    Result<McpJson> outcome;
  };

  StdioConnection(ChildProcess process, McpNotices notices, OwnedFd wake);
  void read_all();
  void take_line(std::string_view line);
  void take_message(const McpJson& message);
  void take_unreadable(std::string_view line);
  bool end_request(int64_t id, Result<McpJson> outcome);
  void take_unclaimed(Result<McpJson> outcome);
  void claim(int64_t id);
  void leave_unclaimed(int64_t id);
  void settle_unclaimed();
  void log_line(std::string_view line);
  void answer(const McpJson& request);
  void look_at_minute();
  void end(const std::string& why);
  Status write(std::string_view line, const McpWait& wait);
  Status write_some(std::string_view& rest, const McpWait& wait);

  McpNotices notices_;
  OwnedFd wake_;  // an eventfd that ends the reader
  std::timed_mutex writing_;
  // input: guarded by writing_; the rest: reader thread only
  ChildProcess process_;
  std::mutex mutex_;
  std::condition_variable_any answered_;
  std::map<int64_t, Outcome> waiting_;  // by request id
  std::vector<Unclaimed> unclaimed_;
  int64_t next_id_ = 1;
  std::string why_ended_;
  std::atomic<bool> ended_{false}, leaving_{false};
  // the program left half a message unread for too long
  std::atomic<bool> stuck_{false};
  Minute minute_;  // reader thread only
  std::thread thread_;
};

}  // namespace penstock
