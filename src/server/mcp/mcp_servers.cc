#include "server/mcp/mcp_servers.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cassert>
#include <exception>

namespace penstock {
namespace {

constexpr size_t kThreads = 32;      // concurrent calls to one server
constexpr size_t kThreadsOfOne = 4;  // maximum per client
// maximum of clients that have a call under way already; half is left for those that have none
constexpr size_t kFurtherThreads = kThreads / 2;
constexpr size_t kMostOfOne = 32;  // waiting jobs per client

bool may_use(const McpServerConfig& config, const std::string& key) {
  return key.empty() || config.keys.empty() ||
         std::ranges::find(config.keys, key) != config.keys.end();
}

}  // namespace

// failure: written before `done`; done and refused: used on the executor only.
struct McpServers::Job {
  Job(const net::any_io_executor& executor, WorkOnServer task)
      : arrival(executor), work(std::move(task)) {}
  net::steady_timer arrival;
  WorkOnServer work;
  std::stop_source stop;
  std::exception_ptr failure;
  bool done = false, refused = false;
};

McpServers::McpServers(McpConfig config, const std::function<void(std::string_view)>& warn)
    : config_(std::move(config)) {
  for (const McpServerConfig& one : config_.servers)
    servers_.push_back(std::make_unique<Served>(one, warn));
}

McpServers::Served::Served(const McpServerConfig& config,
                           const std::function<void(std::string_view)>& warn)
    : server(config, warn), threads(kThreads, kThreadsOfOne, kFurtherThreads) {}

void McpServers::cancel_all() {
  stopping_.request_stop();
  for (const auto& one : servers_) one->server.leave();
}

void McpServers::stop() {
  cancel_all();
  for (const auto& one : servers_) one->threads.stop();
  servers_.clear();
}

McpServer* McpServers::find(std::string_view name, const std::string& key) const {
  for (const auto& one : servers_) {
    McpServer& server = one->server;
    if (server.config().name == name && may_use(server.config(), key)) return &server;
  }
  return nullptr;
}

std::vector<std::string> McpServers::names(const std::string& key) const {
  std::vector<std::string> all;
  for (const auto& one : servers_) {
    const McpServerConfig& config = one->server.config();
    if (may_use(config, key)) all.push_back(config.name);
  }
  return all;
}

net::awaitable<Status> McpServers::run(const McpServer& server, Exchange& exchange,
                                       const Tick& tick, WorkOnServer work) {
  const auto is_it = [&server](const auto& one) { return &one->server == &server; };
  const auto served = std::ranges::find_if(servers_, is_it);
  assert(served != servers_.end());
  const auto job = std::make_shared<Job>(exchange.executor(), std::move(work));
  const std::stop_callback stops(stopping_.get_token(), [&job] { job->stop.request_stop(); });
  if (exchange.gone()) co_return errorf(ErrorCode::kCancelled, "cancelled");
  exchange.on_disconnect = [job] { job->stop.request_stop(); };
  const auto carry_out = [](TurnThreads& threads, std::string asker,
                            std::shared_ptr<Job> job) -> net::awaitable<void> {
    const auto do_it = [job] {
      if (!job->stop.stop_requested()) job->work(job->stop.get_token());
    };
    try {
      job->refused = !co_await threads.run(std::move(asker), do_it, kMostOfOne);
    } catch (...) {
      job->failure = std::current_exception();
    }
    job->done = true;
    job->arrival.cancel();
  };
  net::co_spawn(exchange.executor(), carry_out((*served)->threads, exchange.request().asker(), job),
                net::detached);
  while (!job->done) {
    job->arrival.expires_after(tick.interval);
    co_await job->arrival.async_wait(net::as_tuple(net::use_awaitable));
    if (!job->done && tick.tell && !exchange.gone()) tick.tell();
  }
  exchange.on_disconnect = nullptr;
  if (job->failure) std::rethrow_exception(job->failure);
  if (job->refused)
    co_return errorf(ErrorCode::kResourceExhausted, "too many calls of this client wait already");
  if (job->stop.stop_requested()) co_return errorf(ErrorCode::kCancelled, "cancelled");
  co_return Status();
}

}  // namespace penstock
