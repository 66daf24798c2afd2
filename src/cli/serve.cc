// penstock serve: the OpenAI-compatible server.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/flags.h"
#include "cli/models.h"
#include "cli/terminal.h"
#include "frontend/reply_parsers/reply_parser.h"
#include "server/server.h"

namespace penstock {
namespace {

template <class Rows>
std::string parser_names(const Rows& rows) {
  std::string names;
  for (const auto& row : rows) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

struct ServeCommand {
  explicit ServeCommand(CLI::App& app) {
    add_engine_flags(app, config.engine);
    app.add_option("--host", config.http.host, "address to listen on")->capture_default_str();
    app.add_option("--port", config.http.port, "port to listen on; 0 is any free one")->capture_default_str();
    app.add_option("--served-model-name", config.model_name, "name in the API (default: the file's name)");
    app.add_option("--api-key", config.api_keys, "key that clients must send; may be repeated");
    app.add_option("--api-key-file", api_key_file, "file of keys, one per line");
    app.add_option("--ssl-certfile", config.http.tls_certificate, "certificate chain, PEM");
    app.add_option("--ssl-keyfile", config.http.tls_key, "private key, PEM");
    app.add_option("--chat-template", config.chat.chat_template,
                   "a file, or a template's text, instead of the model's");
    app.add_flag("--trust-request-chat-template", config.chat.trust_request_template,
                 "requests may bring a chat template of their own");
    app.add_option("--tool-call-parser", config.chat.tool_call_parser,
                   "reads tool calls in replies: auto (by the chat template), none or " +
                       parser_names(tool_parsers()))
        ->capture_default_str();
    app.add_option("--reasoning-parser", config.chat.reasoning_parser,
                   "splits reasoning from answers: auto, none or " + parser_names(reasoning_formats()))
        ->capture_default_str();
    app.add_option("--max-logprobs", config.max_logprobs,
                   "alternatives per token a request may ask for; -1 is any number")
        ->capture_default_str();
    app.add_flag("--ignore-unknown-fields", config.ignore_unknown_fields,
                 "log unknown fields of requests instead of refusing them");
    app.add_option("--io-threads", config.http.io_threads, "threads for sockets and text")
        ->capture_default_str();
    app.add_option("--max-connections", config.http.max_connections, "connections at once")
        ->capture_default_str();
    app.add_option("--max-body-bytes", config.http.max_body_bytes, "largest request body")
        ->capture_default_str();
    app.add_option("--request-timeout", request_timeout, "seconds a request may take; 0 is no limit")
        ->capture_default_str();
    app.add_option("--shutdown-timeout", shutdown_timeout, "seconds to finish requests at shutdown")
        ->capture_default_str();
    app.add_flag("--log-requests,!--no-log-requests", config.log_requests, "log a line per request");
  }
  int run();

  ServerConfig config;
  std::string api_key_file;
  double request_timeout = 0, shutdown_timeout = 30;
};

Status read_keys(const std::string& file, std::vector<std::string>& keys) {
  std::ifstream in(file);
  if (!in) return errorf(ErrorCode::kNotFound, "--api-key-file {}: cannot be opened", file);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.empty()) return errorf(ErrorCode::kInvalidArgument, "--api-key-file {}: holds no key", file);
  return {};
}

int ServeCommand::run() {
  if (const Status found = find_models(config.engine); !found) return fail(found.error());
  config.request_timeout = std::chrono::milliseconds(static_cast<int64_t>(request_timeout * 1000));
  config.shutdown_timeout = std::chrono::milliseconds(static_cast<int64_t>(shutdown_timeout * 1000));
  if (!api_key_file.empty()) {
    if (const Status read = read_keys(api_key_file, config.api_keys); !read) return fail(read.error());
  }
  // SIGINT and SIGTERM go to one thread that waits for them; every other thread inherits the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto server = Server::open(config);
  if (!server) return fail(server.error());
  std::thread([&signals, raw = server->get()] {
    int signal = 0;
    sigwait(&signals, &signal);
    raw->stop();
    sigwait(&signals, &signal);  // a second one does not wait for the drain
    _exit(kExitInterrupted);
  }).detach();
  fmt::print(stderr, "serving {} at {}://{}:{}\n", (*server)->model_name(),
             config.http.tls_certificate.empty() ? "http" : "https", config.http.host, (*server)->port());
  (*server)->run();
  return kExitOk;
}

}  // namespace

Action add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
