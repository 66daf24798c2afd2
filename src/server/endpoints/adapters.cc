// POST /v1/load_lora_adapter and /v1/unload_lora_adapter (vLLM's).
#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "server/api/api_request.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/schema_parts.h"
#include "server/routing/client_reason.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/adapter_folders.h"
#include "server/services/config.h"
#include "server/services/model_loads.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema load_adapter_request, unload_adapter_request;

namespace {

Result<json> read_adapter_body(const HttpRequest& request, const nlohmann::json& schema) {
  constexpr size_t kMostBytes = 64 * 1024;
  ASSIGN_OR_RETURN(json body, read_json(request.body, kMostBytes));
  RETURN_IF_ERROR(check_json(schema, body));
  return body;
}

struct AdapterLoad {
  AdapterSettings adapter;
  ServedModel* base = nullptr;
  bool replace = false;
};

Result<AdapterLoad> read_adapter_load(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, read_adapter_body(request, load_adapter_request()));
  AdapterLoad load;
  load.adapter = {get_string(body, "lora_name"), get_string(body, "lora_path")};
  load.replace = get_bool(body, "load_inplace");
  for (const auto& [field, value] :
       {std::pair("lora_name", &load.adapter.name), std::pair("lora_path", &load.adapter.path)}) {
    if (value->empty())
      return errorf(ErrorCode::kInvalidArgument, "{}: expected a text, got \"\"", field);
  }
  constexpr size_t kMostName = 256;
  if (load.adapter.name.size() > kMostName)
    return errorf(ErrorCode::kInvalidArgument, "lora_name: expected at most {} bytes, got {}",
                  kMostName, load.adapter.name.size());
  ASSIGN_OR_RETURN(load.base, services.models.find(get_string(body, "base_model_name")));
  const auto is_route = [&](const RouteConfig& route) { return route.name == load.adapter.name; };
  if (std::ranges::any_of(services.config.routes, is_route))
    return errorf(ErrorCode::kInvalidArgument, "lora_name: expected a new name, got {}",
                  load.adapter.name);
  return load;
}

// The same message whether or not the path exists.
constexpr const char* kOutside =
    "lora_path: expected a path in a folder that --lora-dir gave the server, whatever links lead "
    "to it";

// Replaces the resolved path in an error by the client's, since server paths are not revealed.
Error error_of_load(Error error, const std::string& path, const std::string& asked) {
  constexpr std::string_view kMark = "\x01";  // occurs in no message
  const auto replace = [&](std::string_view what, std::string_view by) {
    for (size_t at = 0; (at = error.message.find(what, at)) != std::string::npos; at += by.size())
      error.message.replace(at, what.size(), by);
  };
  replace(path, kMark);
  error.message = without_folders(error.message);
  replace(kMark, asked);
  if (error.code == ErrorCode::kCorruptFile) error.code = ErrorCode::kInvalidArgument;
  return error;
}

HttpReply plain_reply(std::string text) {
  HttpReply reply;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = std::move(text);
  return reply;
}

}  // namespace

const nlohmann::json& load_adapter_request() {
  using schema::text;
  static const nlohmann::json value = schema::closed(
      {{"lora_name", text("what requests name it")},
       {"lora_path",
        text("a PEFT directory or a GGUF file in a folder that --lora-dir gave the server, or "
             "its path below one")},
       {"base_model_name",
        text("the served model that it is for; the first one where this is left out")},
       {"load_inplace", schema::boolean("in the place of the adapter of this name")}},
      {"lora_name", "lora_path"});
  return value;
}

const nlohmann::json& unload_adapter_request() {
  using schema::text;
  static const nlohmann::json value = schema::closed(
      {{"lora_name", text("the adapter's name")},
       {"lora_int_id", schema::integer(0, std::numeric_limits<int32_t>::max(), "not used")}},
      {"lora_name"});
  return value;
}

net::awaitable<void> post_load_adapter(Services& services, Exchange& exchange) {
  auto load = read_adapter_load(services, exchange.request());
  if (!load) co_return co_await exchange.reply(error_reply(load.error()));
  const std::string asked = load->adapter.path;
  Result<std::optional<std::filesystem::path>> found;
  co_await services.run_chore(exchange, [&] { found = services.adapter_folders.find(asked); });
  if (!found) co_return co_await exchange.reply(error_reply(found.error()));
  if (!*found) co_return co_await exchange.reply(error_reply(403, kOutside, "lora_path"));
  load->adapter.path = (*found)->string();
  const Status done =
      co_await services.loads.add_adapter(*load->base, load->adapter, load->replace);
  if (!done) {
    log().warn("{} {}: {}", exchange.request().id, exchange.request().path, done.error().message);
    co_return co_await exchange.reply(
        error_reply(error_of_load(done.error(), load->adapter.path, asked)));
  }
  co_await exchange.reply(plain_reply(
      fmt::format("Success: LoRA adapter '{}' added successfully.", load->adapter.name)));
}

net::awaitable<void> post_unload_adapter(Services& services, Exchange& exchange) {
  const auto body = read_adapter_body(exchange.request(), unload_adapter_request());
  if (!body) co_return co_await exchange.reply(error_reply(body.error()));
  const std::string name = get_string(*body, "lora_name");
  bool removed = false;
  for (const auto& model : services.models.all()) removed |= model->remove_adapter(name);
  if (!removed) {
    const Error error{ErrorCode::kNotFound, fmt::format("lora_name: there is no adapter {}", name)};
    co_return co_await exchange.reply(error_reply(error));
  }
  co_await exchange.reply(
      plain_reply(fmt::format("Success: LoRA adapter '{}' removed successfully.", name)));
}

}  // namespace penstock
