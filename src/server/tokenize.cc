// POST /tokenize, /detokenize, GET /tokenizer_info: vLLM's forms, which lm-evaluation-harness uses as a remote tokenizer.
#include "frontend/chat_prompt.h"
#include "server/api_request.h"
#include "server/endpoints.h"
#include "server/errors.h"

namespace penstock {
namespace {

Result<std::vector<TokenId>> tokens_of(Server& server, const HttpRequest& request, const json& body) {
  Session& session = server.session();
  if (body.contains("messages")) {
    const auto in_order = nlohmann::ordered_json::parse(request.body, nullptr, false);
    ASSIGN_OR_RETURN(const ChatPrompter prompter, ChatPrompter::open(session.tokenizer()));
    ChatPrompt options;
    ASSIGN_OR_RETURN(options.add_generation_prompt, get_bool(body, "add_generation_prompt", true));
    const auto tools = in_order.contains("tools") ? in_order["tools"] : nlohmann::ordered_json(nullptr);
    ASSIGN_OR_RETURN(const std::string text, prompter.render(in_order["messages"], tools, nullptr, options));
    return session.encode(text, {.add_bos = false, .parse_special = true});
  }
  if (!body.contains("prompt") || !body["prompt"].is_string()) {
    return errorf(ErrorCode::kInvalidArgument, "prompt: expected a string");
  }
  ASSIGN_OR_RETURN(const bool add_special, get_bool(body, "add_special_tokens", true));
  return session.encode(body["prompt"].get<std::string>(), {.add_bos = add_special, .parse_special = true});
}

Result<json> tokenize(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, parse_body(request));
  RETURN_IF_ERROR(check_model(body, server.model_name()));
  ASSIGN_OR_RETURN(const auto ids, tokens_of(server, request, body));
  json reply = {{"count", ids.size()},
                {"max_model_len", server.session().engine().info().max_model_len},
                {"tokens", ids},
                {"token_strs", nullptr}};
  ASSIGN_OR_RETURN(const bool strings, get_bool(body, "return_token_strs", false));
  if (strings) {
    reply["token_strs"] = json::array();
    for (const TokenId id : ids) reply["token_strs"].push_back(server.session().tokenizer().piece(id));
  }
  return reply;
}

Result<json> detokenize(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const json body, parse_body(request));
  RETURN_IF_ERROR(check_model(body, server.model_name()));
  if (!body.contains("tokens") || !body["tokens"].is_array()) {
    return errorf(ErrorCode::kInvalidArgument, "tokens: expected a list of token ids");
  }
  const Tokenizer& tokenizer = server.session().tokenizer();
  std::vector<TokenId> ids;
  for (const json& item : body["tokens"]) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() >= tokenizer.vocab_size()) {
      return errorf(ErrorCode::kInvalidArgument, "tokens: expected ids from 0 to {}, got {}", tokenizer.vocab_size() - 1,
                    dump(item));
    }
    ids.push_back(item.get<TokenId>());
  }
  return json{{"prompt", tokenizer.decode(ids, false)}};
}

net::awaitable<void> answer(Exchange& exchange, const Result<json>& result) {
  if (!result) co_return co_await exchange.reply(error_reply(result.error()));
  co_await exchange.reply(json_reply(*result));
}

}  // namespace

net::awaitable<void> post_tokenize(Server& server, Exchange& exchange) {
  co_await answer(exchange, tokenize(server, exchange.request()));
}

net::awaitable<void> post_detokenize(Server& server, Exchange& exchange) {
  co_await answer(exchange, detokenize(server, exchange.request()));
}

net::awaitable<void> get_tokenizer_info(Server& server, Exchange& exchange) {
  const Tokenizer& tokenizer = server.session().tokenizer();
  const auto token = [&](TokenId id) { return id == kNoToken ? json(nullptr) : json(tokenizer.piece(id)); };
  const json body = {{"tokenizer_class", "PenstockTokenizer"},
                     {"bos_token", token(tokenizer.bos())},
                     {"eos_token", token(tokenizer.eos())},
                     {"pad_token", token(tokenizer.pad())},
                     {"unk_token", token(tokenizer.unk())},
                     {"chat_template", tokenizer.chat_template().empty() ? json(nullptr) : json(tokenizer.chat_template())}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
