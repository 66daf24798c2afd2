// penstock serve: runs the OpenAI-compatible server.
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>

#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/terminal.h"
#include "cli/options/chat_flags.h"
#include "cli/options/config_file.h"
#include "cli/options/flags.h"
#include "cli/options/mcp_config.h"
#include "cli/options/models_config.h"
#include "cli/options/structured_config.h"
#include "server/server.h"

namespace penstock {
namespace {

// Hints behind the address, printed where standard error is a terminal.
constexpr const char* kServing =
    "Open it in a browser (/docs explains it); clients of OpenAI's API take the same address with "
    "/v1. "
    "Ctrl-C ends it.";
constexpr const char* kBuiltIn =
    "This is the built-in model, which tells stories. penstock serve NAME serves another; penstock "
    "pull lists models that fit this machine.";

struct ServeCommand {
  explicit ServeCommand(CLI::App& app) : app(app) {
    add_engine_flags(app, model.engine);
    app.remove_option(app.get_option("--model"));
    app.add_option("-m,--model,MODEL", models,
                   "GGUF file, Hugging Face directory or name; may be repeated to serve several "
                   "models, as NAME=MODEL to set a model's name")
        ->group("Engine");
    app.add_option("--models-config", models_config,
                   "JSON file with a section per model; the flags are the defaults of a section")
        ->check(CLI::ExistingFile)
        ->excludes("--model")
        ->type_name("FILE");
    app.add_option_function<std::string>(
           "--models-memory",
           [this](const std::string& text) {
             if (const std::string error = parse_bytes(text, config.models_memory); !error.empty())
               throw CLI::ValidationError("--models-memory", error);
           },
           "total memory for weights and KV caches of several models; 0 is 0.85 of the free memory")
        ->type_name("SIZE");
    app.add_option("--served-model-name", model.names,
                   "names in the API; replies show the first (default: the model's name as given; "
                   "for a path, the file's name)")
        ->delimiter(',');
    app.add_option("--lora-modules", lora_modules,
                   "LoRA adapters that requests may name instead of the model: PEFT directories or "
                   "GGUF files")
        ->type_name("NAME=PATH");
    app.add_option("--lora-dir", config.adapter_folders,
                   "folder from which /v1/load_lora_adapter may load adapters; may be repeated; "
                   "without it the route refuses all")
        ->type_name("PATH")
        ->allow_extra_args(false);
    app.add_flag_function(
        "--enable-lora", [](int64_t) {},
        "accepted for compatibility with vLLM; adapters are always enabled");
    app.add_flag("--any-model-name", config.any_model_name,
                 "answer requests for any model name with this model");
    add_api_flags(app);
    add_network_flags(app);
    add_security_flags(app);
    add_store_flags(app);
    add_cache_flags(app);
    add_log_flags(app);
  }
  int run();

  const CLI::App& app;
  ServerConfig config;
  ModelSettings model;  // settings of the flags, which apply to all models
  std::vector<std::string> models;
  std::string models_config;
  std::vector<std::string> lora_modules;
  std::string structured_config = "{}";
  std::string otlp_endpoint;

 private:
  Status read_models();  // fills in config
  Status check_several() const;
  void add_store_flags(CLI::App& app);
  void add_cache_flags(CLI::App& app);
  void add_api_flags(CLI::App& app);
  void add_network_flags(CLI::App& app);
  void add_security_flags(CLI::App& app);
  void add_log_flags(CLI::App& app);
  // Adds a flag whose value is a time in seconds.
  static void add_seconds(CLI::App& app, const char* flag, Milliseconds& value, const char* help) {
    app.add_option_function<double>(
           flag,
           [&value](double seconds) { value = Milliseconds(static_cast<int64_t>(seconds * 1000)); },
           help)
        ->check(CLI::Range(0.0, 1e7))
        ->type_name("SECONDS")
        ->default_str(fmt::format("{}", static_cast<double>(value.count()) / 1000));
  }
};

void ServeCommand::add_api_flags(CLI::App& app) {
  add_chat_flags(app, model);
  app.add_option("--structured-outputs-config", structured_config,
                 "vLLM's: a JSON object; disable_any_whitespace, disable_additional_properties and "
                 "reasoning_parser count, backend may be \"auto\". additional_properties: true "
                 "lets objects have members that their schema does not name")
      ->type_name("JSON");
  app.add_option("--max-reply-bytes", config.max_reply_bytes,
                 "largest reply with vectors, log-probabilities or what choices repeat; requests "
                 "for more are refused "
                 "before computing")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--max-logprobs", config.max_logprobs,
                 "largest number of alternatives per token in a request; -1 is no limit")
      ->capture_default_str();
  app.add_option("--max-tool-rounds", config.mcp.max_rounds,
                 "rounds of MCP tool calls in one response (servers: [mcp.NAME] in --config)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_seconds(app, "--max-tool-time", config.mcp.max_time,
              "time limit of a response with MCP tools");
  app.add_flag("--enable-force-include-usage", config.force_include_usage,
               "add the usage so far to every event of a stream, even if not requested");
  app.add_flag("--strict-fields", config.strict_fields,
               "refuse requests with unknown fields, instead of ignoring the fields with a warning "
               "in the reply's header X-Penstock-Warning");
}

void ServeCommand::add_network_flags(CLI::App& app) {
  HttpConfig& http = config.http;
  app.add_option("--host", http.host, "address to listen on")->capture_default_str();
  app.add_option("--port", http.port, "port to listen on; 0 is any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option(
         "--root-path", config.root_path,
         "path prefix under which a proxy publishes this server; requests may include or omit it")
      ->type_name("PATH");
  app.add_option("--io-threads", http.io_threads, "threads for sockets and text")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--max-connections", http.max_connections,
                 "largest number of concurrent connections")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-header-bytes", http.max_header_bytes, "largest head of a request")
      ->check(CLI::Range(1024, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-body-bytes", http.max_body_bytes, "largest request body")
      ->capture_default_str();
  app.add_option("--max-total-body-bytes", http.max_total_body_bytes,
                 "total bytes of request bodies in progress")
      ->capture_default_str();
  add_seconds(app, "--header-timeout", http.header_timeout,
              "timeout for receiving a request's head");
  add_seconds(app, "--body-timeout", http.body_timeout, "timeout for receiving a request's body");
  add_seconds(app, "--idle-timeout", http.idle_timeout,
              "how long a connection stays open between requests");
  add_seconds(app, "--write-timeout", http.write_timeout,
              "timeout for a client that does not read");
  add_seconds(app, "--sse-keep-alive-interval", config.keep_alive_interval,
              "interval of keep-alive comments in an idle stream");
  add_seconds(app, "--request-timeout", config.request_timeout,
              "time limit of a request; 0 is no limit");
  add_seconds(app, "--unload-timeout", config.unload_timeout,
              "time to finish requests when their model is unloaded, after which they are ended");
  add_seconds(app, "--shutdown-timeout", config.shutdown_timeout,
              "time to finish requests at shutdown");
  app.add_flag("--enable-sleep-mode", config.sleep_mode,
               "POST /sleep and /wake_up give the models' memory back and load them again");
}

void ServeCommand::add_security_flags(CLI::App& app) {
  app.add_option("--api-key", config.api_keys, "key that clients must send; may be repeated")
      ->envname("PENSTOCK_API_KEY")
      ->allow_extra_args(false);
  app.add_option("--api-key-file", config.api_key_file,
                 "file of hashed keys with scopes and quotas: see `penstock keys`");
  app.add_option("--cors-origin", config.cors_origins,
                 "origin whose pages may call this server; * is any; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--allow-image-urls", config.allow_image_urls,
               "requests may name pictures by https URLs, which this server fetches: public "
               "addresses only, 32 MiB in 10 s");
  app.add_option("--allowed-host", config.allowed_hosts,
                 "accepted name in the Host header besides local ones, for servers without keys; * "
                 "is any; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--ssl-certfile", config.http.tls_certificate, "certificate chain, PEM");
  app.add_option("--ssl-keyfile", config.http.tls_key, "private key, PEM");
}

void ServeCommand::add_store_flags(CLI::App& app) {
  app.add_option("--data-dir", config.data_dir,
                 "folder for data that persists between runs, such as /v1/files; without it "
                 "nothing is stored")
      ->type_name("PATH");
  app.add_option("--max-stored-files", config.store_limits.files.files,
                 "largest number of files per API key")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--max-stored-bytes", config.store_limits.files.bytes,
         "total size of the files of one API key; a single file is limited by --max-body-bytes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  ResponseLimits& responses = config.store_limits.responses;
  app.add_option(
         "--max-stored-responses", responses.responses,
         "largest number of stored responses per API key; the oldest are removed for new ones")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-stored-response-bytes", responses.bytes,
                 "total size of the stored responses of one API key")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option_function<double>(
         "--stored-response-days",
         [&responses](double days) { responses.seconds = static_cast<int64_t>(days * 86400); },
         "how long a response is stored")
      ->check(CLI::Range(0.0, 36500.0))
      ->type_name("DAYS")
      ->default_str("30");
}

void ServeCommand::add_cache_flags(CLI::App& app) {
  ReplyCacheConfig& cache = config.reply_cache;
  app.add_option_function<std::string>(
         "--reply-cache",
         [&cache](const std::string& text) {
           if (const std::string error = parse_bytes(text, cache.bytes); !error.empty())
             throw CLI::ValidationError("--reply-cache", error);
         },
         "bytes of replies to cache for equal requests without random sampling")
      ->type_name("SIZE");
  app.add_option("--reply-cache-entries", cache.entries, "largest number of cached replies")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  app.add_option("--reply-cache-ttl", cache.ttl, "lifetime of a cached reply")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_option("--reply-cache-by-meaning", config.reply_cache_embedder,
                 "answer chats from the cache whose last question means the same: name of the "
                 "served embedding model that compares questions")
      ->type_name("NAME");
  app.add_option("--reply-cache-threshold", cache.threshold,
                 "least cosine of the embeddings of two questions that mean the same")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--prefix-cache-across-keys", config.prefix_cache_across_keys,
               "share cached prompts between API keys: a key can learn from cache hits what others "
               "have asked");
  app.add_flag("--reply-cache-across-keys", cache.across_keys,
               "share cached replies between API keys");
  app.add_flag("--reply-cache-sampled", cache.sampled, "cache sampled replies without a seed too");
  app.add_flag("--reply-cache-on-request", cache.only_on_request,
               "use the cache only for requests with the header x-penstock-cache: on");
}

void ServeCommand::add_log_flags(CLI::App& app) {
  app.add_flag("--log-requests,!--no-log-requests", config.log.requests, "log a line per request");
  app.add_flag("--log-prompts", config.log.prompts, "log the request's body too");
  app.add_option("--log-format", config.log.format, "text or json")->capture_default_str();
  app.add_option("--log-level", config.log.level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_option("--otlp-endpoint,--otlp-traces-endpoint", otlp_endpoint,
                 "OTLP/HTTP receiver of request spans (default: OTEL_EXPORTER_OTLP_ENDPOINT)")
      ->type_name("URL");
  app.add_flag("--vllm-metrics,!--no-vllm-metrics", config.vllm_metrics,
               "show /metrics under vLLM's names too");
}

// Raises the limit of file descriptors as far as permitted, since each connection needs one.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Fixes the size from which malloc maps blocks separately, so that freeing them returns the memory.
// By default glibc raises that threshold (up to 32 MiB) with every large block that is freed, and a
// few large requests would keep their memory for good.
void return_large_blocks() { mallopt(M_MMAP_THRESHOLD, 512 * 1024); }

// Rejects flags that apply to a single model when there are several.
Status ServeCommand::check_several() const {
  const EngineConfig& engine = model.engine;
  const std::pair<const char*, bool> flags[] = {
      {"--served-model-name", !model.names.empty()},
      {"--lora-modules", !lora_modules.empty()},
      {"--draft-model", !engine.draft_model.empty()},
      {"--spec-heads", !engine.spec_heads.empty()},
      {"--spec-corpus", !engine.spec_corpus.empty()},
      {"--chat-template", !model.chat.chat_template.empty()}};
  for (const auto& [flag, given] : flags) {
    if (given)
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: of which of the models? Say it in --models-config", flag);
  }
  return {};
}

Status ServeCommand::read_models() {
  RETURN_IF_ERROR(read_structured_config(structured_config, config.structured, model.chat));
  ASSIGN_OR_RETURN(model.adapters, adapters_of_flags(lora_modules));
  ASSIGN_OR_RETURN(config.mcp.servers, read_mcp_config(mcp_sections(app)));
  if (models.size() > 1 || !models_config.empty()) RETURN_IF_ERROR(check_several());
  if (models_config.empty()) {
    ASSIGN_OR_RETURN(config.models, models_of_flags(models, model));
    return {};
  }
  ASSIGN_OR_RETURN(ModelsConfig read, read_models_config(models_config, model));
  config.models = std::move(read.models);
  config.routes = std::move(read.routes);
  if (config.models_memory == 0) config.models_memory = read.memory;
  return {};
}

// time after --shutdown-timeout at which the process ends, whatever its threads do
constexpr Milliseconds kToEnd{800};

// The running server, for the signal thread. After set(nullptr) the server may be destroyed.
// Thread-safe.
struct Running {
  std::mutex mutex;
  Server* server = nullptr;  // null: not started yet, or stopped

  void set(Server* now) {
    const std::lock_guard lock(mutex);
    server = now;
  }
  // Starts the server's shutdown. Returns false if no server is ready.
  bool stop() {
    const std::lock_guard lock(mutex);
    if (server == nullptr || !server->services().models.ready()) return false;
    server->stop();
    return true;
  }
};

// Ends the process a given time after end_in(), whatever its other threads do. The thread is
// started by the constructor, since the system may have no more threads when it is needed.
class LastDeadline {
 public:
  LastDeadline() {
    std::thread([this] {
      begun_.acquire();
      std::this_thread::sleep_for(time_);
      constexpr std::string_view kSaid =
          "penstock: shutdown timeout: the process ends with threads at work\n";
      // The log may be destroyed already; where nobody reads it, a write would wait for ever.
      pollfd log{STDERR_FILENO, POLLOUT, 0};
      if (poll(&log, 1, 0) > 0 && (log.revents & POLLOUT) != 0)
        (void)!::write(STDERR_FILENO, kSaid.data(), kSaid.size());
      _exit(kExitOk);
    }).detach();
  }
  // Starts the countdown. REQUIRES: called once.
  void end_in(Milliseconds time) {
    time_ = time;
    begun_.release();
  }

 private:
  Milliseconds time_{0};
  std::binary_semaphore begun_{0};
};

// Waits for SIGINT or SIGTERM (blocked in every thread), stops the server, and ends the process on
// a second signal. Does not return.
void wait_for_signals(const sigset_t& signals, Running& running, LastDeadline& deadline,
                      Milliseconds shutdown_timeout) {
  int signal = 0;
  sigwait(&signals, &signal);
  deadline.end_in(shutdown_timeout + kToEnd);
  if (!running.stop()) _exit(signal == SIGTERM ? kExitOk : kExitInterrupted);
  sigwait(&signals, &signal);  // a second signal ends the process immediately
  _exit(kExitInterrupted);
}

int ServeCommand::run() {
  return_large_blocks();
  if (const Status read = read_models(); !read) return fail(read.error());
  auto otlp = otlp_config(otlp_endpoint);
  if (!otlp) return fail(otlp.error());
  config.otlp = std::move(*otlp);
  raise_file_limit();
  // SIGINT and SIGTERM are blocked here, which all threads inherit, and received by one waiting
  // thread.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  static Running running;  // static, since the detached threads outlive this call
  static LastDeadline deadline;
  std::thread([signals, timeout = config.shutdown_timeout] {
    wait_for_signals(signals, running, deadline, timeout);
  }).detach();
  auto server = Server::open(config);
  if (!server) return fail(server.error());
  running.set(server->get());
  const Status served = (*server)->run([&] {
    std::vector<std::string> names;
    for (const auto& one : (*server)->services().models.all()) names.push_back(one->name());
    fmt::print(stderr, "serving {} at {}://{}:{}\n", fmt::join(names, ","),
               config.http.tls_certificate.empty() ? "http" : "https", config.http.host,
               (*server)->port());
    if (!stderr_is_terminal()) return;
    fmt::print(stderr, "{}\n", dim(kServing));
    if (models.empty() && models_config.empty()) fmt::print(stderr, "{}\n", dim(kBuiltIn));
  });
  running.set(nullptr);
  if (served) return kExitOk;
  // The I/O threads would still answer /live: end the process in spite of them.
  const int code = fail(served.error());
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

Action add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
