// POST /tokenize, /detokenize, GET /tokenizer_info: vLLM's forms, which lm-evaluation-harness uses as a
// remote tokenizer, and llama.cpp's; POST /apply-template.
#include "frontend/embedding_model.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/errors.h"
#include "server/api/schemas.h"
#include "server/http/run_apart.h"
#include "server/server.h"

namespace penstock {
namespace {

Result<const Tokenizer*> tokenizer_of(const ServedModel& model) {
  const Tokenizer* tokenizer =
      model.pools() ? penstock::tokenizer_of(model.pooling().model()) : &model.tokenizer();
  if (tokenizer != nullptr) return tokenizer;
  return errorf(ErrorCode::kInvalidArgument, "model: the checkpoint of {} has no tokenizer", model.name());
}

// llama.cpp's fields, which mean something beside its "content" alone.
Status check_content(const json& body) {
  if (get_field(body, "content").is_null()) {
    for (const char* name : {"add_special", "parse_special", "with_pieces"}) {
      if (!get_field(body, name).is_null())
        return errorf(ErrorCode::kInvalidArgument, "{}: belongs to content, which is not there", name);
    }
    return {};
  }
  for (const char* name : {"prompt", "messages", "add_special_tokens"}) {
    if (!get_field(body, name).is_null())
      return errorf(ErrorCode::kInvalidArgument, "content: cannot stand beside {}", name);
  }
  return {};
}

Result<std::vector<TokenId>> tokens_of_content(const ServedModel& model, const json& body) {
  const bool add_special = get_bool(body, "add_special"), parse = get_bool(body, "parse_special", true);
  const std::string text = get_string(body, "content");
  if (!model.pools()) return model.session().encode(text, {.add_bos = add_special, .parse_special = parse});
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(model));
  return tokenizer->encode(text, {.add_special = add_special, .parse_special = parse});
}

Result<std::vector<TokenId>> tokens_of(const ServedModel& model, json& body) {
  if (!get_field(body, "messages").is_null()) {
    if (!get_field(body, "prompt").is_null())
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected a prompt or messages, got both");
    if (model.pools()) return errorf(ErrorCode::kInvalidArgument, "messages: a model of vectors reads texts");
    Conversation conversation = conversation_of_chat(body);
    conversation.any_length = true;
    ASSIGN_OR_RETURN(ChatTask task, model.chat().read(std::move(conversation)));
    return std::move(task.prompt);
  }
  if (get_field(body, "content").is_string()) return tokens_of_content(model, body);
  if (!get_field(body, "prompt").is_string())
    return errorf(ErrorCode::kInvalidArgument, "prompt: missing, as are messages");
  const bool add_special = get_bool(body, "add_special_tokens", true);
  if (model.pools()) {
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(model));
    return tokenizer->encode(get_string(body, "prompt"), {.add_special = add_special, .parse_special = true});
  }
  return model.session().encode(get_string(body, "prompt"), {.add_bos = add_special, .parse_special = true});
}

// The token's text, or its bytes where they are a part of a character.
json piece_json(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes(tokenizer.token_bytes(token));
  const std::vector<TokenId> alone = {token};
  const bool is_text = tokenizer.decode(alone, false) == tokenizer.decode_bytes(alone, false);
  return is_text ? json(bytes) : json(std::vector<unsigned char>(bytes.begin(), bytes.end()));
}

Result<json> tokenize(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(server, request, tokenize_request(), ModelUse::kEither));
  const ServedModel& model = *asked.model;
  const bool with_texts = get_bool(asked.fields, "return_token_strs");
  RETURN_IF_ERROR(check_content(asked.fields));
  const bool with_pieces = get_bool(asked.fields, "with_pieces");
  ASSIGN_OR_RETURN(const auto ids, tokens_of(model, asked.fields));
  json reply = {{"count", ids.size()},
                {"max_model_len", model.max_model_len()},
                {"tokens", ids},
                {"token_strs", nullptr}};
  if (with_pieces) {
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(model));
    for (json& token : reply["tokens"])
      token = {{"id", token}, {"piece", piece_json(*tokenizer, token.get<TokenId>())}};
  }
  if (with_texts) {
    reply["token_strs"] = json::array();
    ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(model));
    for (const TokenId id : ids) reply["token_strs"].push_back(tokenizer->piece(id));
  }
  return reply;
}

Result<json> detokenize(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(server, request, detokenize_request(), ModelUse::kEither));
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*asked.model));
  std::vector<TokenId> ids;
  for (const json& item : asked.fields["tokens"]) {
    if (item.get<int64_t>() >= tokenizer->vocab_size()) {
      return errorf(ErrorCode::kInvalidArgument, "tokens: expected ids from 0 to {}, got {}",
                    tokenizer->vocab_size() - 1, dump(item));
    }
    ids.push_back(item.get<TokenId>());
  }
  const std::string text = tokenizer->decode(ids, false);
  return json{{"prompt", text}, {"content", text}};
}

Result<json> apply_template(Server& server, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(server, request, apply_template_request()));
  Conversation conversation = conversation_of_chat(asked.fields);
  conversation.any_length = true;
  std::string text;
  RETURN_IF_ERROR(asked.model->chat().read(std::move(conversation), text));
  return json{{"prompt", text}};
}

using Work = Result<json> (*)(Server& server, const HttpRequest& request);

net::awaitable<void> answer_with(Server& server, Exchange& exchange, Work work) {
  Result<json> result;
  co_await run_apart(exchange, [&] { result = work(server, exchange.request()); });
  if (!result) co_return co_await exchange.reply(error_reply(result.error()));
  co_await exchange.reply(json_reply(*result));
}

}  // namespace

net::awaitable<void> post_tokenize(Server& server, Exchange& exchange) {
  co_await answer_with(server, exchange, tokenize);
}

net::awaitable<void> post_detokenize(Server& server, Exchange& exchange) {
  co_await answer_with(server, exchange, detokenize);
}

net::awaitable<void> post_apply_template(Server& server, Exchange& exchange) {
  co_await answer_with(server, exchange, apply_template);
}

net::awaitable<void> get_tokenizer_info(Server& server, Exchange& exchange) {
  const auto lease = co_await model_of_query(server, exchange.request());
  if (!lease) co_return co_await exchange.reply(error_reply(lease.error()));
  const ServedModel& model = **lease;
  const auto found = tokenizer_of(model);
  if (!found) co_return co_await exchange.reply(error_reply(found.error()));
  const Tokenizer& tokenizer = **found;
  const auto token = [&](TokenId id) { return id == kNoToken ? json(nullptr) : json(tokenizer.piece(id)); };
  const std::string chat_template = model.pools() ? "" : model.chat().chat_template();
  const json body = {{"tokenizer_class", "PenstockTokenizer"},
                     {"bos_token", token(tokenizer.bos())},
                     {"eos_token", token(tokenizer.eos())},
                     {"pad_token", token(tokenizer.pad())},
                     {"unk_token", token(tokenizer.unk())},
                     {"chat_template", chat_template.empty() ? json(nullptr) : json(chat_template)}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
