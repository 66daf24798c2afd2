// The lines of a batch: validation, and conversion to requests.
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
struct Endpoint;

// A valid line of an input file.
struct BatchLine {
  std::string custom_id;
  std::string url;   // path of a route
  std::string body;  // JSON
};
struct BatchMistake {
  std::string code, message, param;
  int64_t line = 0;  // from 1
};
inline constexpr int64_t kMostBatchLines = 50000;
inline constexpr size_t kMostBatchMistakes = 100;

// Parses {"custom_id", "method": "POST", "url", "body"}. endpoint: the required url; "": any route
// that batches may use.
tl::expected<BatchLine, BatchMistake> read_batch_line(std::string_view text,
                                                      std::string_view endpoint);
// Parses all lines; custom_ids must be unique. If there are mistakes, returns no lines and up to
// kMostBatchMistakes mistakes.
std::vector<BatchLine> read_batch(std::string_view text, std::string_view endpoint,
                                  std::vector<BatchMistake>& mistakes);
BatchMistake twice(const std::string& custom_id);

struct LineResult {
  bool failed = false;  // the status is not 200
  std::string text;     // the line of results, without line end
  int n_tokens = 0;     // number of generated tokens
};
// Returns the result of a line that was not computed.
std::string unanswered_line(const std::string& custom_id, const char* code, const char* message);

// Computes lines. REQUIRES: used on the executor's thread.
class LineComputer {
 public:
  LineComputer(Services& services, net::any_io_executor executor)
      : services_(services), executor_(std::move(executor)) {}

  // Computes a line. Retries while the queue is full or the model is not loaded, as long as
  // wanted() is true. nullopt: given up. request: everything except the body.
  net::awaitable<std::optional<LineResult>> compute(const BatchLine& line, HttpRequest request,
                                                    const std::function<bool()>& wanted);
  // Ends the lines under way without results.
  void give_up();

 private:
  Services& services_;
  net::any_io_executor executor_;
  struct Entry;
  std::list<UnattendedExchange*> under_way_;
};

}  // namespace penstock
