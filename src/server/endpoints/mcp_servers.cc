// GET /v1/mcp_servers: the MCP servers whose tools responses may use.
#include "server/mcp/mcp_servers.h"
#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {

const nlohmann::json& mcp_servers_reply() {
  using namespace schema;
  static const Json server =
      open({{"id", plain("string")}, {"object", plain("string")}}, {"id", "object"});
  static const Json value =
      open({{"object", plain("string")}, {"data", {{"type", "array"}, {"items", server}}}},
           {"object", "data"});
  return value;
}

namespace {

json servers_of_key(const Services& services, const HttpRequest& request) {
  json data = json::array();
  if (services.mcp != nullptr) {
    for (const std::string& name : services.mcp->names(record_of(request).key))
      data.push_back({{"id", name}, {"object", "mcp_server"}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

}  // namespace

net::awaitable<void> get_mcp_servers(Services& services, Exchange& exchange) {
  co_await exchange.reply(json_reply(servers_of_key(services, exchange.request())));
}

}  // namespace penstock
