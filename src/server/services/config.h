// The configuration of a server.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/http/http_config.h"
#include "server/mcp/mcp_config.h"
#include "server/replies/cache/reply_cache.h"
#include "server/routes/table/route_table.h"
#include "server/services/request_log.h"
#include "server/services/served_model.h"
#include "server/services/stores.h"
#include "server/telemetry/otlp_exporter.h"

namespace penstock {

// Defaults for constrained outputs, used where a request does not decide.
struct StructuredDefaults {
  bool disable_any_whitespace = false, disable_additional_properties = false;
  bool additional_properties = false;  // for requests that do not ask to disable them
};

struct ServerConfig {
  HttpConfig http;
  // false: no socket and no keys; only answer() is used, after load()
  bool listens = true;
  // at least one; the first is the default. Without names: the file's name.
  std::vector<ModelSettings> models;
  // virtual model names for which the server chooses a model
  std::vector<RouteConfig> routes;
  // bytes for all models together; see served_models.h
  int64_t models_memory = 0;
  // time for requests under way when a model is unloaded; then they are ended
  std::chrono::milliseconds unload_timeout{120000};
  McpConfig mcp;                // servers whose tools responses may use
  bool any_model_name = false;  // requests may use any model name
  // pictures of requests may be https URLs, which the server fetches (image_urls.h)
  bool allow_image_urls = false;
  // folders from which adapters may be loaded at run time
  std::vector<std::string> adapter_folders;
  // path prefix under which a proxy publishes this server ("/llm"); paths are accepted with and
  // without it
  std::string root_path;
  // plain keys, which have all scopes
  std::vector<std::string> api_keys;
  // file of hashed keys with scopes and quotas; with neither: no authentication
  std::string api_key_file;
  // origins whose pages may call this server from a browser; "*": all
  std::vector<std::string> cors_origins;
  // Accepted Host names; "*": all. Checked only without TLS and without keys, where a web page
  // could profit from a false one (see origins.h).
  std::vector<std::string> allowed_hosts;
  StructuredDefaults structured;
  int max_choices = 128;  // limit of prompts * n of one call
  // limit of a reply with vectors or log-probabilities
  int64_t max_reply_bytes = int64_t{128} << 20;
  // maximum number of alternatives per token in a request; -1: unlimited
  int max_logprobs = 20;
  // refuse unlisted request fields instead of ignoring them with a warning
  bool strict_fields = false;
  std::chrono::milliseconds request_timeout{0};  // 0 = none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds keep_alive_interval{15000};  // between comments of an idle stream
  // directory for persistent data; "": none
  std::string data_dir;
  StoreLimits store_limits;  // per API key
  // share cached prompts between API keys
  bool prefix_cache_across_keys = false;
  bool sleep_mode = false;  // POST /sleep and /wake_up may be called
  ReplyCacheConfig reply_cache;
  // served model whose vectors compare questions by meaning
  std::string reply_cache_embedder;
  LogConfig log;
  OtlpConfig otlp;                   // export of request spans
  bool vllm_metrics = true;          // /metrics includes vLLM's names
  bool force_include_usage = false;  // every stream event has usage
};

}  // namespace penstock
