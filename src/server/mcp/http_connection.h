// MCP over HTTP: every message is a POST, answered with one message or a stream of them.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

#include "server/mcp/connection.h"

namespace penstock {

class McpHttpConnection final : public McpConnection {
 public:
  McpHttpConnection(McpServerConfig config, McpNotices notices)
      : config_(std::move(config)), notices_(std::move(notices)) {}
  ~McpHttpConnection() override;

  Result<McpJson> request(std::string_view method, const McpJson& params,
                          const McpWait& wait) override;
  Status notify(std::string_view method, const McpJson& params, const McpWait& wait) override;
  // Unreachable services are retried on the next request; an expired session is final.
  bool alive() const override { return !over_; }
  void leave() override {}

 private:
  // the result of initialize()
  struct Session {
    std::string id, version;
  };
  Session session() const;
  Status post(const std::string& body, const McpWait& wait,
              std::function<bool(std::string_view)> take);
  void answer(const McpJson& request, const McpWait& wait);

  const McpServerConfig config_;
  const McpNotices notices_;
  mutable std::mutex mutex_;
  Session session_;
  std::atomic<int64_t> next_id_{1};
  std::atomic<bool> over_{false};
};

}  // namespace penstock
