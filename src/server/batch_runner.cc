#include "server/batch_runner.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "frontend/random_id.h"
#include "server/api/api_request.h"
#include "server/api/json_reader.h"
#include "server/server.h"

namespace penstock {
namespace {

constexpr size_t kMostMistakes = 100;
constexpr int kBesideOthers = 1;                       // lines at once while other requests run
constexpr auto kLook = std::chrono::milliseconds(20);  // how soon it is seen that others have come or gone
constexpr auto kFullQueue = std::chrono::milliseconds(500);
constexpr int kMostTries = 60;  // of a line whose model is not there; where the queue is full it waits on

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

// What is wrong with a line's fields; "" nothing. param: which.
std::string mistake_of(const json& line, std::string_view endpoint, std::string& param) {
  const auto text = [&](const char* name) -> std::string {
    param = name;
    return get_field(line, name).is_string() ? line[name].get<std::string>() : "";
  };
  if (!line.is_object()) return "expected a JSON object";
  if (text("custom_id").empty()) return "custom_id: expected a text";
  if (text("method") != "POST") return "method: expected POST";
  if (text("url") != endpoint) return fmt::format("url: expected {}, as of the batch", endpoint);
  param = "body";
  if (!get_field(line, "body").is_object()) return "body: expected an object";
  param = "body.stream";
  if (get_bool(line["body"], "stream")) return "body.stream: the results of a batch are not streamed";
  return "";
}

json response_line(const std::string& custom_id, int status, const std::string& request_id, json body) {
  return {{"id", random_id("batch_req_")},
          {"custom_id", custom_id},
          {"response", {{"status_code", status}, {"request_id", request_id}, {"body", std::move(body)}}},
          {"error", nullptr}};
}

json unanswered_line(const std::string& custom_id, const char* code, const char* message) {
  return {{"id", random_id("batch_req_")},
          {"custom_id", custom_id},
          {"response", nullptr},
          {"error", {{"code", code}, {"message", message}}}};
}

std::string errors_json(const std::vector<BatchMistake>& mistakes) {
  json list = json::array();
  for (const BatchMistake& one : mistakes) {
    list.push_back({{"code", one.code},
                    {"message", one.message},
                    {"param", one.param.empty() ? json() : json(one.param)},
                    {"line", one.line > 0 ? json(one.line) : json()}});
  }
  return dump({{"object", "list"}, {"data", std::move(list)}});
}

const Route* post_route(std::string_view path) {
  const auto found = std::ranges::find_if(routes(), [&](const Route& route) {
    return route.path == path && std::string_view(route.method) == "POST";
  });
  return found == routes().end() ? nullptr : &*found;
}

}  // namespace

std::vector<BatchLine> read_batch(std::string_view text, std::string_view endpoint,
                                  std::vector<BatchMistake>& mistakes) {
  std::vector<BatchLine> lines;
  std::unordered_set<std::string> seen;
  int64_t number = 0;
  const auto add = [&](const char* code, std::string message, std::string param) {
    mistakes.push_back({code, std::move(message), std::move(param), number});
  };
  while (!text.empty() && mistakes.size() < kMostMistakes) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (one.empty()) continue;
    constexpr size_t kAllowance = size_t{8} << 20;
    auto parsed = read_json(one, kAllowance);
    std::string param;
    if (!parsed) {
      add("invalid_json_line", "expected a JSON object: " + parsed.error().message, "");
    } else if (const std::string wrong = mistake_of(*parsed, endpoint, param); !wrong.empty()) {
      add("invalid_request", wrong, param);
    } else {
      BatchLine line{(*parsed)["custom_id"].get<std::string>(), dump((*parsed)["body"])};
      if (!seen.insert(line.custom_id).second)
        add("duplicate_custom_id", "custom_id: given twice: " + line.custom_id, "custom_id");
      else
        lines.push_back(std::move(line));
    }
    if (static_cast<int64_t>(lines.size()) > kMostBatchLines) {
      add("too_many_lines", fmt::format("expected at most {} lines", kMostBatchLines), "");
      break;
    }
  }
  if (lines.empty() && mistakes.empty())
    mistakes.push_back({"empty_file", "expected at least one line", "", 0});
  if (!mistakes.empty()) lines.clear();
  return lines;
}

struct BatchRunner::Run {
  StoredBatch batch;
  const Route* route = nullptr;
  std::vector<BatchLine> lines;
  std::unique_ptr<BatchResults> results;
  int n_under_way = 0;
  bool ending = false;           // cancelled or over: lines that wait for the queue do so no longer
  std::optional<Error> failure;  // of the disk
};

BatchRunner::BatchRunner(Server& server, StoredBatches& batches) : server_(server), batches_(batches) {}

BatchRunner::~BatchRunner() {
  stop();
  thread_.join();
}

void BatchRunner::start() { net::co_spawn(thread_, run(), net::detached); }

void BatchRunner::wake() {
  net::post(thread_, [this] { news_.cancel(); });
}

void BatchRunner::stop() {
  if (stopping_.exchange(true)) return;
  net::post(thread_, [this] {
    give_up();
    news_.cancel();
  });
}

void BatchRunner::give_up() {
  for (LineExchange* line : under_way_) line->leave();
}

// Until there is news, or so long.
net::awaitable<void> BatchRunner::wait(std::chrono::milliseconds most) {
  boost::system::error_code cancelled;
  news_.expires_after(most);
  co_await news_.async_wait(net::redirect_error(net::use_awaitable, cancelled));
}

// How many lines may be under way now.
int BatchRunner::room() const {
  if (server_.n_generating() > 0) return kBesideOthers;
  int most = 1;
  for (const auto& model : server_.models().all()) {
    const ModelLease lease = model->lease();
    if (lease != nullptr && !lease->pools()) most = std::max(most, lease->config().max_num_seqs);
  }
  return most;
}

net::awaitable<void> BatchRunner::run() {
  while (!stopping_) {
    auto waiting = batches_.unfinished();
    if (!waiting) {
      server_.log().error("batches: " + waiting.error().message);
    } else if (!waiting->empty()) {
      co_await run_batch(std::move(waiting->front()));
      continue;
    }
    if (!stopping_) co_await wait(std::chrono::minutes(1));
  }
}

net::awaitable<void> BatchRunner::run_batch(StoredBatch batch) {
  Run run{.batch = std::move(batch)};
  const std::string id = run.batch.id;
  const auto give_up_for_now = [&](const Error& error) {
    server_.log().error(fmt::format("{}: {}", id, error.message));
  };
  run.route = post_route(run.batch.endpoint);
  const auto input = batches_.input_of(run.batch);
  std::vector<BatchMistake> mistakes;
  if (run.route == nullptr)
    mistakes.push_back({"invalid_endpoint", "this server has no such endpoint", "endpoint"});
  if (!input) {
    mistakes.push_back({"input_file", input.error().message, "input_file_id"});
  } else {
    run.lines = read_batch(*input, run.batch.endpoint, mistakes);
  }
  auto results = batches_.results_of(run.batch);
  Status done = results ? Status() : tl::unexpected(results.error());
  if (done) {
    run.results = std::move(*results);
    run.batch.total = static_cast<int64_t>(run.lines.size());
    if (!mistakes.empty()) {
      run.batch.errors = errors_json(mistakes);
      done = batches_.finish(run.batch, BatchStatus::kFailed, *run.results);
    } else if (const auto updated = batches_.update(run.batch, BatchStatus::kInProgress); !updated) {
      done = tl::unexpected(updated.error());
    } else {
      co_await run_lines(run);
      if (stopping_) co_return;
      done = run.failure ? Status(tl::unexpected(*run.failure)) : Status();
    }
  }
  if (!done) {  // a full disk, …: what is kept stays, and it is tried again
    give_up_for_now(done.error());
    co_await wait(std::chrono::seconds(10));
  }
}

net::awaitable<void> BatchRunner::run_lines(Run& run) {
  size_t next = 0;
  BatchStatus end = BatchStatus::kCompleted;
  const auto look = [&]() -> Status {  // whether it was cancelled, or its time is over
    ASSIGN_OR_RETURN(const StoredBatch now, batches_.find(run.batch.owner, run.batch.id));
    if (now.status == BatchStatus::kCancelling) end = BatchStatus::kCancelled;
    if (now.status != BatchStatus::kCancelling && std::time(nullptr) >= now.expires)
      end = BatchStatus::kExpired;
    return {};
  };
  auto written = std::chrono::steady_clock::now();
  while (!stopping_ && !run.failure && end == BatchStatus::kCompleted) {
    while (next < run.lines.size() && run.results->has(run.lines[next].custom_id)) ++next;
    if (next == run.lines.size() && run.n_under_way == 0) break;
    if (const Status looked = look(); !looked) run.failure = looked.error();
    if (end != BatchStatus::kCompleted || run.failure) break;
    for (int n = room(); next < run.lines.size() && run.n_under_way < n; ++next) {
      if (run.results->has(run.lines[next].custom_id)) continue;
      ++run.n_under_way;
      net::co_spawn(thread_, run_line(run, run.lines[next]), net::detached);
    }
    co_await wait(kLook);
    const auto now = std::chrono::steady_clock::now();
    if (now - written < std::chrono::seconds(1)) continue;
    written = now;
    run.batch.completed = run.results->n_completed(), run.batch.failed = run.results->n_failed();
    if (const auto updated = batches_.update(run.batch, BatchStatus::kInProgress); !updated)
      run.failure = updated.error();
  }
  run.ending = true;
  if (stopping_ || run.failure || end == BatchStatus::kExpired) give_up();
  while (run.n_under_way > 0) co_await wait(kLook);
  if (stopping_ || run.failure) co_return;
  for (const BatchLine& line : run.lines) {
    if (end != BatchStatus::kExpired || run.results->has(line.custom_id)) continue;
    const Status kept = run.results->append(
        true, line.custom_id,
        dump(unanswered_line(line.custom_id, "batch_expired", "the batch's completion window is over")));
    if (!kept) run.failure = kept.error();
    if (!kept) co_return;
  }
  if (end == BatchStatus::kCompleted) {
    if (const auto updated = batches_.update(run.batch, BatchStatus::kFinalizing); !updated)
      run.failure = updated.error();
  }
  if (!run.failure) {
    if (const Status finished = batches_.finish(run.batch, end, *run.results); !finished)
      run.failure = finished.error();
  }
}

net::awaitable<void> BatchRunner::run_line(Run& run, const BatchLine& line) {
  ++counts_.lines_running;
  HttpRequest request;
  request.method = "POST";
  request.path = run.batch.endpoint;
  request.headers = {{"content-type", "application/json"}};
  request.key = run.batch.key;
  request.body = line.body;
  request.peer = run.batch.id;
  if (run.route->request().contains("/properties/priority/type"_json_pointer)) {
    json body = json::parse(line.body);
    body["priority"] = 1;  // behind all others
    request.body = dump(body);
  }
  for (int tries = 0; !stopping_ && (tries == 0 || !run.ending); ++tries) {
    request.id = random_id("req_");
    LineExchange exchange(thread_.get_executor(), request);
    under_way_.push_back(&exchange);
    const auto place = std::prev(under_way_.end());
    co_await server_.answer(*run.route, exchange);
    under_way_.erase(place);
    if (exchange.gone() || !exchange.replied()) break;
    if (exchange.status() == 429 || (exchange.status() == 503 && tries < kMostTries)) {
      net::steady_timer again(thread_, kFullQueue);
      co_await again.async_wait(net::use_awaitable);
      continue;
    }
    const bool failed = exchange.status() != 200;
    json body = json::parse(exchange.body(), nullptr, false);
    if (body.is_discarded()) body = exchange.body();
    const Status kept = run.results->append(
        failed, line.custom_id,
        dump(response_line(line.custom_id, exchange.status(), request.id, std::move(body))));
    if (!kept) run.failure = kept.error();
    ++(failed ? counts_.lines_failed : counts_.lines_completed);
    break;
  }
  --counts_.lines_running;
  --run.n_under_way;
  news_.cancel();
}

}  // namespace penstock
