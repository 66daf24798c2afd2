// What a server is started with.
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

// What holds for every constrained text besides what its request says.
struct StructuredDefaults {
  bool disable_any_whitespace = false, disable_additional_properties = false;
  bool additional_properties = false;  // for requests that do not ask to disable them
};

struct ServerConfig {
  HttpConfig http;
  // false: there is no socket and there are no keys, only answer() is used, after load()
  bool listens = true;
  // at least one, the first is the default; without names: the file's name
  std::vector<ModelSettings> models;
  // names that leave the choice of a model to the server
  std::vector<RouteConfig> routes;
  // bytes for all of them together (served_models.h)
  int64_t models_memory = 0;
  McpConfig mcp;                // servers whose tools responses may use
  bool any_model_name = false;  // requests may name whatever they like
  // that adapters may be loaded from while the server runs
  std::vector<std::string> adapter_folders;
  // "/llm": where a proxy shows this server; paths are understood with it and without
  std::string root_path;
  // as clients send them; they may do everything
  std::vector<std::string> api_keys;
  // hashed keys with scopes and quotas; with neither: no authentication
  std::string api_key_file;
  // whose pages a browser may let call this server; "*": anyone's
  std::vector<std::string> cors_origins;
  // Names that Host may have, "*": any. Looked at only where a page could profit from another one
  // (see origins.h): without TLS and without keys.
  std::vector<std::string> allowed_hosts;
  StructuredDefaults structured;
  int max_choices = 128;  // prompts * n of one call
  // that a reply with vectors or log-probabilities may become
  int64_t max_reply_bytes = int64_t{128} << 20;
  // alternatives per token a request may ask for; -1 = any number
  int max_logprobs = 20;
  // refuse fields of requests that no schema lists, instead of leaving them out with a warning
  bool strict_fields = false;
  std::chrono::milliseconds request_timeout{0};  // 0 = none
  std::chrono::milliseconds shutdown_timeout{30000};
  std::chrono::milliseconds keep_alive_interval{15000};  // between two comments of a silent stream
  // what is kept between runs; "": nothing is
  std::string data_dir;
  StoreLimits store_limits;  // for each API key
  // requests of different API keys share cached prompts
  bool prefix_cache_across_keys = false;
  ReplyCacheConfig reply_cache;
  // name of the served model whose vectors tell which questions mean the same
  std::string reply_cache_embedder;
  LogConfig log;
  OtlpConfig otlp;                   // where spans of requests go
  bool vllm_metrics = true;          // /metrics also under vLLM's names
  bool force_include_usage = false;  // every event of a stream tells the usage
};

}  // namespace penstock
