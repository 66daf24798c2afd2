#include "server/batches/batch_lines.h"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text_hash.h"
#include "frontend/random_id.h"
#include "server/api/api_request.h"
#include "server/api/json_reader.h"
#include "server/keys/access.h"
#include "server/keys/accounts.h"
#include "server/keys/ledger/spending.h"
#include "server/routes/dispatch.h"
#include "server/routing/endpoint.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr const char* kEndpoints[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                      "/v1/responses",        "/v1/score",       "/v1/rerank",
                                      "/v2/rerank",           "/classify",       "/pooling"};
constexpr auto kFullQueue = std::chrono::milliseconds(500);
constexpr size_t kLongestId = 512;  // bytes
// for lines whose model is not loaded; a full queue is retried without limit
constexpr int kMostTries = 60;

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

// Returns an error in a line's fields other than the url, "": none. param: the field.
std::string mistake_of(const json& line, std::string& param) {
  const auto text = [&](const char* name) -> std::string {
    param = name;
    return get_field(line, name).is_string() ? line[name].get<std::string>() : "";
  };
  if (!line.is_object()) return "expected a JSON object";
  const std::string id = text("custom_id");
  if (id.empty()) return "custom_id: expected a text";
  // custom_id is repeated in the stored list of mistakes, so that its length is limited.
  if (id.size() > kLongestId)
    return fmt::format("custom_id: expected at most {} bytes, got {}", kLongestId, id.size());
  if (text("method") != "POST") return "method: expected POST";
  param = "body";
  if (!get_field(line, "body").is_object()) return "body: expected an object";
  param = "body.stream";
  if (get_bool(line["body"], "stream"))
    return "body.stream: the results of a batch are not streamed";
  return "";
}

// As mistake_of(), for the url, which is replaced by the endpoint's path.
std::string mistake_of_url(std::string& url, std::string_view endpoint) {
  url = canonical_path(url, "");
  if (!endpoint.empty())
    return url == endpoint ? "" : fmt::format("url: expected {}, as of the batch", endpoint);
  if (std::ranges::find(kEndpoints, url) != std::end(kEndpoints)) return "";
  return fmt::format("url: expected one of {}", fmt::join(kEndpoints, ", "));
}

// Returns the message in an error body.
std::string message_of(const std::string& body) {
  const json error = bounded_json<json>(body);
  return get_string(get_field(error, "error"), "message", "the budget is spent");
}

json response_line(const std::string& custom_id, int status, const std::string& request_id,
                   json body) {
  return {{"id", random_id("batch_req_")},
          {"custom_id", custom_id},
          {"response",
           {{"status_code", status}, {"request_id", request_id}, {"body", std::move(body)}}},
          {"error", nullptr}};
}

}  // namespace

tl::expected<BatchLine, BatchMistake> read_batch_line(std::string_view text,
                                                      std::string_view endpoint) {
  constexpr size_t kAllowance = size_t{8} << 20;
  const auto wrong = [](const char* code, std::string message, std::string param) {
    return tl::unexpected(BatchMistake{code, std::move(message), std::move(param), 0});
  };
  auto parsed = read_json(text, kAllowance);
  if (!parsed)
    return wrong("invalid_json_line", "expected a JSON object: " + parsed.error().message, "");
  std::string param;
  if (std::string mistake = mistake_of(*parsed, param); !mistake.empty())
    return wrong("invalid_request", std::move(mistake), param);
  BatchLine line{(*parsed)["custom_id"].get<std::string>(), get_string(*parsed, "url"),
                 dump((*parsed)["body"])};
  if (std::string mistake = mistake_of_url(line.url, endpoint); !mistake.empty())
    return wrong("invalid_request", std::move(mistake), "url");
  return line;
}

std::vector<BatchLine> read_batch(std::string_view text, std::string_view endpoint,
                                  std::vector<BatchMistake>& mistakes) {
  std::vector<BatchLine> lines;
  TextSet seen;
  int64_t number = 0;
  const auto add = [&](BatchMistake mistake) {
    mistake.line = number;
    mistakes.push_back(std::move(mistake));
  };
  while (!text.empty() && mistakes.size() < kMostBatchMistakes) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (one.empty()) continue;
    auto line = read_batch_line(one, endpoint);
    if (!line)
      add(std::move(line.error()));
    else if (!seen.insert(line->custom_id).second)
      add(twice(line->custom_id));
    else
      lines.push_back(*std::move(line));
    if (static_cast<int64_t>(lines.size()) > kMostBatchLines) {
      add({"too_many_lines", fmt::format("expected at most {} lines", kMostBatchLines), "", 0});
      break;
    }
  }
  if (lines.empty() && mistakes.empty())
    mistakes.push_back({"empty_file", "expected at least one line", "", 0});
  if (!mistakes.empty()) lines.clear();
  return lines;
}

BatchMistake twice(const std::string& custom_id) {
  return {"duplicate_custom_id", "custom_id: given twice: " + custom_id, "custom_id", 0};
}

std::string unanswered_line(const std::string& custom_id, const char* code, const char* message) {
  return dump({{"id", random_id("batch_req_")},
               {"custom_id", custom_id},
               {"response", nullptr},
               {"error", {{"code", code}, {"message", message}}}});
}

// Registers an exchange as under way for its lifetime.
struct LineComputer::Entry {
  Entry(std::list<UnattendedExchange*>& list, UnattendedExchange& exchange)
      : all(list), place(all.insert(all.end(), &exchange)) {}
  ~Entry() { all.erase(place); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  std::list<UnattendedExchange*>& all;
  const std::list<UnattendedExchange*>::iterator place;
};

void LineComputer::give_up() {
  for (UnattendedExchange* line : under_way_) line->leave();
}

net::awaitable<std::optional<LineResult>> LineComputer::compute(
    const BatchLine& line, HttpRequest request, const std::function<bool()>& wanted) {
  const Endpoint* endpoint = find_post_endpoint(line.url);
  request.method = "POST";
  request.path = line.url;
  request.headers = {{"content-type", "application/json"}};
  request.body = line.body;
  const RequestRecord caller = record_of(request);
  for (int tries = 0; wanted(); ++tries) {
    if (const auto spent = services_.accounts.spent_budget_of(caller.payer)) {
      const std::string reason = text_of_budget(*spent);
      co_return LineResult{true, unanswered_line(line.custom_id, "budget_exceeded", reason.c_str()),
                           0};
    }
    request.id = random_id("req_");
    const auto start = std::chrono::steady_clock::now();
    UnattendedExchange exchange(executor_, request);
    RequestRecord& record = *(exchange.record() = caller.of_same_caller());
    record.background = true;
    record.spending = services_.accounts.spending_of(caller.payer);
    {
      const Entry entry(under_way_, exchange);
      co_await answer(services_, *endpoint, exchange);
    }
    services_.accounts.note_use(exchange, start);
    if (exchange.gone() || !exchange.replied()) break;
    if (exchange.status() == 429 && record.over_budget) {
      const std::string reason = message_of(exchange.body());
      co_return LineResult{true, unanswered_line(line.custom_id, "budget_exceeded", reason.c_str()),
                           0};
    }
    if (exchange.status() == 429 || (exchange.status() == 503 && tries < kMostTries)) {
      if (services_.models.sleeps()) tries = 0;  // however long the server is asleep
      net::steady_timer again(executor_, kFullQueue);
      co_await again.async_wait(net::use_awaitable);
      continue;
    }
    json body = bounded_json<json>(exchange.body());
    if (body.is_discarded()) body = exchange.body();
    LineResult result;
    result.failed = exchange.status() != 200;
    result.text =
        dump(response_line(line.custom_id, exchange.status(), request.id, std::move(body)));
    result.n_tokens = record.use.completion_tokens;
    co_return result;
  }
  co_return std::nullopt;
}

}  // namespace penstock
