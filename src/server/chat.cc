// POST /v1/chat/completions.
#include "frontend/chat_prompt.h"
#include "server/api_request.h"
#include "server/endpoints.h"
#include "server/errors.h"
#include "server/openai_json.h"
#include "server/streaming.h"

namespace penstock {
namespace {

using ordered_json = nlohmann::ordered_json;

struct ChatCall {
  GenerationCall generation;
  bool stream = false, include_usage = false, continuous_usage = false, logprobs = false;
};

// max_completion_tokens is the newer name of max_tokens; without either a chat may fill the context.
Status read_max_tokens(const json& body, int room, SamplingParams& params) {
  ASSIGN_OR_RETURN(const int64_t newer, get_int(body, "max_completion_tokens", -1, 0, INT32_MAX));
  if (newer >= 0) params.max_tokens = static_cast<int>(newer);
  if (params.max_tokens < 0) params.max_tokens = std::max(room, 1);
  return {};
}

Status read_logprobs(const json& body, ChatCall& call) {
  ASSIGN_OR_RETURN(call.logprobs, get_bool(body, "logprobs", false));
  ASSIGN_OR_RETURN(const int64_t top, get_int(body, "top_logprobs", 0, 0, 20));
  if (top > 0 && !call.logprobs) return errorf(ErrorCode::kInvalidArgument, "top_logprobs: needs logprobs: true");
  call.generation.params.logprobs = call.logprobs ? std::optional<int>(static_cast<int>(top)) : std::nullopt;
  return {};
}

// The field order of messages matters to some templates: they are read again from the text as it came.
Result<std::string> render_prompt(Server& server, const HttpRequest& request, const json& body) {
  const ordered_json in_order = ordered_json::parse(request.body, nullptr, false);
  ASSIGN_OR_RETURN(const std::string source, get_string(body, "chat_template", ""));
  ASSIGN_OR_RETURN(const ChatPrompter prompter, ChatPrompter::open(server.session().tokenizer(), source));
  ChatPrompt options;
  ASSIGN_OR_RETURN(options.add_generation_prompt, get_bool(body, "add_generation_prompt", true));
  ASSIGN_OR_RETURN(options.continue_final_message, get_bool(body, "continue_final_message", false));
  const auto part = [&](const char* name) { return in_order.contains(name) ? in_order[name] : ordered_json(nullptr); };
  ASSIGN_OR_RETURN(const std::string choice, get_string(body.contains("tool_choice") && body["tool_choice"].is_string() ? body : json::object(), "tool_choice", "auto"));
  const ordered_json tools = choice == "none" ? ordered_json(nullptr) : part("tools");
  return prompter.render(part("messages"), tools, part("chat_template_kwargs"), options);
}

Result<ChatCall> read_call(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(json body, parse_body(request));
  RETURN_IF_ERROR(check_model(body, server.model_name()));
  if (const auto format = body.find("response_format"); format != body.end() && format->is_object()) {
    if (format->value("type", "") != "text") {
      return errorf(ErrorCode::kInvalidArgument, "response_format: only {{\"type\": \"text\"}} is supported");
    }
  }
  RETURN_IF_ERROR(refuse_fields(body, {"structured_outputs", "use_beam_search", "audio", "functions"}));
  ChatCall call;
  ASSIGN_OR_RETURN(const std::string prompt, render_prompt(server, request, body));
  call.generation.prompts.push_back(server.session().encode(prompt, {.add_bos = false, .parse_special = true}));
  json sampling = body;
  sampling.erase("logprobs");  // a flag here, a number elsewhere
  ASSIGN_OR_RETURN(call.generation.params, read_sampling(server.session(), sampling, -1));
  const int room = server.session().engine().info().max_model_len - static_cast<int>(call.generation.prompts[0].size());
  RETURN_IF_ERROR(read_max_tokens(body, room, call.generation.params));
  if (call.generation.params.n > server.config().max_choices) {
    return errorf(ErrorCode::kInvalidArgument, "n: expected at most {}, got {}", server.config().max_choices,
                  call.generation.params.n);
  }
  RETURN_IF_ERROR(read_logprobs(body, call));
  ASSIGN_OR_RETURN(call.stream, get_bool(body, "stream", false));
  RETURN_IF_ERROR(read_stream_options(body, call.include_usage, call.continuous_usage));
  ASSIGN_OR_RETURN(call.generation.priority, read_priority(body));
  ASSIGN_OR_RETURN(call.generation.cache_salt, get_string(body, "cache_salt", ""));
  if (server.config().request_timeout.count() > 0) call.generation.timeout = server.config().request_timeout;
  return call;
}

json envelope(Server& server, const std::string& id, const char* object) {
  return {{"id", id}, {"object", object}, {"created", unix_time()}, {"model", server.model_name()}};
}

net::awaitable<void> reply_whole(Server& server, Exchange& exchange, const ChatCall& call, Generation& generation) {
  if (!co_await generation.finish()) co_return;
  if (generation.error()) co_return co_await exchange.reply(error_reply(*generation.error()));
  json body = envelope(server, random_id("chatcmpl"), "chat.completion");
  body["choices"] = json::array();
  for (const CompletionOutput& one : generation.outputs().front().outputs) {
    json choice = {{"index", one.index},
                   {"message", {{"role", "assistant"}, {"content", one.text}, {"refusal", nullptr}}},
                   {"finish_reason", finish_reason_name(one.finish_reason)},
                   {"stop_reason", stop_reason_json(one)},
                   {"logprobs", nullptr}};
    if (call.logprobs) {
      json content = json::array();
      for (const auto& row : one.logprobs) content.push_back(chat_logprob_json(server.session().tokenizer(), row));
      choice["logprobs"] = {{"content", content}, {"refusal", nullptr}};
    }
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = usage_json(generation);
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> reply_stream(Server& server, Exchange& exchange, const ChatCall& call, Generation& generation) {
  const std::string id = random_id("chatcmpl");
  std::vector<char> started(call.generation.params.n, 0);
  std::vector<json> held(call.generation.params.n, json::array());  // logprobs whose text is still held back
  const auto chunk_of = [&](int index, json delta, const char* finish, json logprobs) {
    json chunk = envelope(server, id, "chat.completion.chunk");
    chunk["choices"] = json::array({{{"index", index}, {"delta", std::move(delta)}, {"logprobs", std::move(logprobs)}}});
    chunk["choices"][0]["finish_reason"] = finish == nullptr ? json(nullptr) : json(finish);
    if (call.continuous_usage) chunk["usage"] = usage_json(generation);
    return sse(chunk);
  };
  const auto render = [&](const ChoiceDelta& delta) {
    std::string events;
    if (!std::exchange(started[delta.choice], 1)) {
      events += chunk_of(delta.choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    if (call.logprobs && !delta.logprobs.empty()) {
      held[delta.choice].push_back(chat_logprob_json(server.session().tokenizer(), delta.logprobs));
    }
    if (!delta.text.empty() || (delta.finish != FinishReason::kNone && !held[delta.choice].empty())) {
      json logprobs = nullptr;
      if (call.logprobs) logprobs = {{"content", std::exchange(held[delta.choice], json::array())}};
      events += chunk_of(delta.choice, {{"content", delta.text}}, nullptr, std::move(logprobs));
    }
    if (delta.finish != FinishReason::kNone) {
      events += chunk_of(delta.choice, json::object(), finish_reason_name(delta.finish), nullptr);
    }
    return events;
  };
  const auto finish = [&] {
    std::string tail;
    if (call.include_usage) {
      json chunk = envelope(server, id, "chat.completion.chunk");
      chunk["choices"] = json::array();
      chunk["usage"] = usage_json(generation);
      tail = sse(chunk);
    }
    return tail + "data: [DONE]\n\n";
  };
  co_await stream_events(server, exchange, generation, render, finish);
}

}  // namespace

net::awaitable<void> post_chat_completions(Server& server, Exchange& exchange) {
  auto call = read_call(server, exchange.request());
  if (!call) co_return co_await exchange.reply(error_reply(call.error()));
  auto generation = Generation::start(server.session(), exchange, call->generation);
  if (!generation) co_return co_await exchange.reply(error_reply(generation.error()));
  if (call->stream) {
    co_await reply_stream(server, exchange, *call, **generation);
  } else {
    co_await reply_whole(server, exchange, *call, **generation);
  }
}

}  // namespace penstock
