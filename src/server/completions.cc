// POST /v1/completions: OpenAI's legacy completions with vLLM's extra sampling fields.
#include "server/api_request.h"
#include "server/endpoints.h"
#include "server/errors.h"
#include "server/openai_json.h"
#include "server/streaming.h"

namespace penstock {
namespace {

constexpr int kDefaultMaxTokens = 16;

struct CompletionCall {
  GenerationCall generation;
  bool stream = false, echo = false, include_usage = false, continuous_usage = false;
  std::optional<int> logprobs;  // as the client asked; echo needs them of the prompt too
  std::vector<std::string> prompt_texts;
};

Result<std::vector<TokenId>> read_ids(const json& list, int vocab_size) {
  std::vector<TokenId> ids;
  for (const json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() >= vocab_size) {
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected token ids from 0 to {}, got {}", vocab_size - 1,
                    dump(item));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

// A string, a list of strings, a list of ids or a list of lists of ids.
Status read_prompts(const Session& session, const json& body, bool add_bos, CompletionCall& call) {
  const auto found = body.find("prompt");
  if (found == body.end() || found->is_null()) return errorf(ErrorCode::kInvalidArgument, "prompt: missing");
  const int vocab_size = session.tokenizer().vocab_size();
  const bool one = found->is_string() || (found->is_array() && !found->empty() && found->front().is_number());
  const json list = one ? json::array({*found}) : *found;
  if (!list.is_array() || list.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "prompt: expected a string, token ids, or a list of them");
  }
  for (const json& item : list) {
    if (item.is_string()) {
      call.prompt_texts.push_back(item.get<std::string>());
      call.generation.prompts.push_back(session.encode(call.prompt_texts.back(), {add_bos, true}));
    } else if (item.is_array()) {
      ASSIGN_OR_RETURN(auto ids, read_ids(item, vocab_size));
      call.prompt_texts.push_back(session.tokenizer().decode(ids, false));
      call.generation.prompts.push_back(std::move(ids));
    } else {
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected a string or token ids, got {}", dump(item));
    }
  }
  return {};
}

Result<CompletionCall> read_call(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, parse_body(request));
  RETURN_IF_ERROR(check_model(body, server.model_name()));
  RETURN_IF_ERROR(refuse_fields(body, {"suffix", "response_format", "prompt_embeds", "use_beam_search"}));
  CompletionCall call;
  ASSIGN_OR_RETURN(call.generation.params, read_sampling(server.session(), body, kDefaultMaxTokens));
  SamplingParams& params = call.generation.params;
  ASSIGN_OR_RETURN(const int64_t best_of, get_int(body, "best_of", params.n, 1, server.config().max_choices));
  if (best_of != params.n) return errorf(ErrorCode::kInvalidArgument, "best_of: expected n ({}), got {}", params.n, best_of);
  ASSIGN_OR_RETURN(const bool add_bos, get_bool(body, "add_special_tokens", true));
  RETURN_IF_ERROR(read_prompts(server.session(), body, add_bos, call));
  if (static_cast<int64_t>(call.generation.prompts.size()) * params.n > server.config().max_choices) {
    return errorf(ErrorCode::kInvalidArgument, "prompt, n: expected at most {} choices, got {}",
                  server.config().max_choices, call.generation.prompts.size() * params.n);
  }
  ASSIGN_OR_RETURN(call.stream, get_bool(body, "stream", false));
  ASSIGN_OR_RETURN(call.echo, get_bool(body, "echo", false));
  RETURN_IF_ERROR(read_stream_options(body, call.include_usage, call.continuous_usage));
  call.logprobs = params.logprobs;
  if (call.echo && call.logprobs) {
    if (call.stream) return errorf(ErrorCode::kInvalidArgument, "echo: not supported with stream and logprobs");
    params.prompt_logprobs = call.logprobs;
  }
  ASSIGN_OR_RETURN(call.generation.priority, read_priority(body));
  ASSIGN_OR_RETURN(call.generation.cache_salt, get_string(body, "cache_salt", ""));
  if (server.config().request_timeout.count() > 0) call.generation.timeout = server.config().request_timeout;
  return call;
}

json envelope(Server& server, const std::string& id, const char* object) {
  return {{"id", id}, {"object", object}, {"created", unix_time()}, {"model", server.model_name()}};
}

json choice_json(Server& server, const CompletionCall& call, const RequestOutput& output, const CompletionOutput& one,
                 int index, const std::string& prompt_text) {
  const Tokenizer& tokenizer = server.session().tokenizer();
  json choice = {{"index", index},
                 {"text", (call.echo ? prompt_text : "") + one.text},
                 {"finish_reason", finish_reason_name(one.finish_reason)},
                 {"stop_reason", stop_reason_json(one)},
                 {"logprobs", nullptr}};
  if (call.logprobs) {
    LegacyLogprobs logprobs(tokenizer, *call.logprobs);
    if (call.echo) logprobs.add_prompt(output.prompt_token_ids, output.prompt_logprobs);
    for (const auto& row : one.logprobs) logprobs.add(row);
    choice["logprobs"] = logprobs.take();
  }
  return choice;
}

net::awaitable<void> reply_whole(Server& server, Exchange& exchange, const CompletionCall& call, Generation& generation) {
  if (!co_await generation.finish()) co_return;
  if (generation.error()) co_return co_await exchange.reply(error_reply(*generation.error()));
  json body = envelope(server, random_id("cmpl"), "text_completion");
  body["choices"] = json::array();
  for (size_t p = 0; p < generation.outputs().size(); ++p) {
    const RequestOutput& output = generation.outputs()[p];
    for (const CompletionOutput& one : output.outputs) {
      const int index = static_cast<int>(p) * call.generation.params.n + one.index;
      body["choices"].push_back(choice_json(server, call, output, one, index, call.prompt_texts[p]));
    }
  }
  body["usage"] = usage_json(generation);
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> reply_stream(Server& server, Exchange& exchange, const CompletionCall& call, Generation& generation) {
  const std::string id = random_id("cmpl");
  std::vector<char> started(call.generation.prompts.size() * call.generation.params.n, 0);
  std::vector<LegacyLogprobs> logprobs(started.size(), LegacyLogprobs(server.session().tokenizer(), call.logprobs.value_or(0)));
  const auto render = [&](const ChoiceDelta& delta) -> std::string {
    std::string text = delta.text;
    const bool first = !std::exchange(started[delta.choice], 1);
    if (first && call.echo) text = call.prompt_texts[delta.choice / call.generation.params.n] + text;
    if (call.logprobs && !delta.logprobs.empty()) logprobs[delta.choice].add(delta.logprobs);
    if (text.empty() && delta.finish == FinishReason::kNone) return "";
    json chunk = envelope(server, id, "text_completion");
    json choice = {{"index", delta.choice}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (call.logprobs) choice["logprobs"] = logprobs[delta.choice].take();
    if (delta.finish != FinishReason::kNone) choice["finish_reason"] = finish_reason_name(delta.finish);
    chunk["choices"] = json::array({choice});
    if (call.continuous_usage) chunk["usage"] = usage_json(generation);
    return sse(chunk);
  };
  const auto finish = [&] {
    std::string tail;
    if (call.include_usage) {
      json chunk = envelope(server, id, "text_completion");
      chunk["choices"] = json::array();
      chunk["usage"] = usage_json(generation);
      tail = sse(chunk);
    }
    return tail + "data: [DONE]\n\n";
  };
  co_await stream_events(server, exchange, generation, render, finish);
}

}  // namespace

net::awaitable<void> post_completions(Server& server, Exchange& exchange) {
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
