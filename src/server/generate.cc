// POST /v1/generate: the plain form. {prompt, max_tokens = 100, temperature = 1.0, stream = false, …} ->
// {text, tokens_generated, latency_ms, tokens_per_second}.
#include "server/api_request.h"
#include "server/endpoints.h"
#include "server/errors.h"
#include "server/streaming.h"

namespace penstock {
namespace {

Result<GenerationCall> read_call(Server& server, const HttpRequest& request, bool& stream) {
  ASSIGN_OR_RETURN(json body, parse_body(request));
  if (!body.contains("prompt") || !body["prompt"].is_string()) {
    return errorf(ErrorCode::kInvalidArgument, "prompt: expected a string");
  }
  GenerationCall call;
  call.prompts.push_back(server.session().encode(body["prompt"].get<std::string>(), {}));
  ASSIGN_OR_RETURN(call.params, read_sampling(server.session(), body, 100));
  if (call.params.n != 1) return errorf(ErrorCode::kInvalidArgument, "n: expected 1, got {}", call.params.n);
  ASSIGN_OR_RETURN(stream, get_bool(body, "stream", false));
  ASSIGN_OR_RETURN(call.priority, read_priority(body));
  ASSIGN_OR_RETURN(call.cache_salt, get_string(body, "cache_salt", ""));
  if (server.config().request_timeout.count() > 0) call.timeout = server.config().request_timeout;
  return call;
}

json summary(const Generation& generation, const CompletionOutput& output, double seconds) {
  const int n = generation.n_completion_tokens();
  return {{"tokens_generated", n},
          {"latency_ms", seconds * 1000},
          {"tokens_per_second", seconds > 0 ? n / seconds : 0.0},
          {"prompt_tokens", generation.n_prompt_tokens()},
          {"finish_reason", finish_reason_name(output.finish_reason)}};
}

}  // namespace

net::awaitable<void> post_generate(Server& server, Exchange& exchange) {
  const auto start = std::chrono::steady_clock::now();
  bool stream = false;
  auto call = read_call(server, exchange.request(), stream);
  if (!call) co_return co_await exchange.reply(error_reply(call.error()));
  auto generation = Generation::start(server.session(), exchange, *call);
  if (!generation) co_return co_await exchange.reply(error_reply(generation.error()));
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (stream) {
    const auto render = [](const ChoiceDelta& delta) { return delta.text.empty() ? "" : sse({{"text", delta.text}}); };
    const auto finish = [&] {
      json last = summary(**generation, (*generation)->outputs()[0].outputs[0], seconds());
      last["done"] = true;
      return sse(last);
    };
    co_return co_await stream_events(server, exchange, **generation, render, finish);
  }
  if (!co_await (*generation)->finish()) co_return;
  if ((*generation)->error()) co_return co_await exchange.reply(error_reply(*(*generation)->error()));
  const CompletionOutput& output = (*generation)->outputs()[0].outputs[0];
  json body = summary(**generation, output, seconds());
  body["text"] = output.text;
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
