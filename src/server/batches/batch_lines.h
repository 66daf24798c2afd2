// The lines of a batch: what a file of them must look like, and what one becomes as a request.
#pragma once
#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "server/http/unattended_exchange.h"

namespace penstock {

struct Services;
struct Route;

// One line of an input file that is one.
struct BatchLine {
  std::string custom_id;
  std::string url;   // of a route
  std::string body;  // JSON
};
struct BatchMistake {
  std::string code, message, param;
  int64_t line = 0;  // from 1 on
};
inline constexpr int64_t kMostBatchLines = 50000;
inline constexpr size_t kMostBatchMistakes = 100;

// {"custom_id", "method": "POST", "url", "body"}. endpoint: what the url must be; "": any that
// batches may have.
tl::expected<BatchLine, BatchMistake> read_batch_line(std::string_view text,
                                                      std::string_view endpoint);
// Lines like that, every custom_id once. With mistakes the first hundred of them, and no lines.
std::vector<BatchLine> read_batch(std::string_view text, std::string_view endpoint,
                                  std::vector<BatchMistake>& mistakes);
BatchMistake twice(const std::string& custom_id);

struct LineResult {
  bool failed = false;  // the status is not 200
  std::string text;     // a line of results, without its end
  int n_tokens = 0;     // generated
};
// A result of a line that was not computed.
std::string unanswered_line(const std::string& custom_id, const char* code, const char* message);

// Computes lines. The executor's thread.
class LineComputer {
 public:
  LineComputer(Services& services, net::any_io_executor executor)
      : services_(services), executor_(std::move(executor)) {}

  // A line that finds the queue full or its model unloaded waits and is tried again, as long as it
  // is `wanted`. Nothing: it was given up. request: what it has beside the line.
  net::awaitable<std::optional<LineResult>> compute(const BatchLine& line, HttpRequest request,
                                                    const std::function<bool()>& wanted);
  // Lines under way end without a result.
  void give_up();

 private:
  Services& services_;
  net::any_io_executor executor_;
  struct Entry;
  std::list<UnattendedExchange*> under_way_;
};

}  // namespace penstock
