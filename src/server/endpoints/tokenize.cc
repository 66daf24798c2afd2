// POST /tokenize, /detokenize, GET /tokenizer_info: vLLM's forms, which lm-evaluation-harness uses
// as a remote tokenizer, and llama.cpp's; POST /apply-template.
#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "frontend/embedding_model.h"
#include "server/api/api_request.h"
#include "server/api/conversations.h"
#include "server/api/counted_text.h"
#include "server/api/openai_json.h"
#include "server/api/schemas.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/services.h"
#include "text/unicode/unicode.h"

namespace penstock {
namespace {

Result<const Tokenizer*> tokenizer_of(const ServedModel& model) {
  const Tokenizer* tokenizer =
      model.pools() ? penstock::tokenizer_of(model.pooling().model()) : &model.tokenizer();
  if (tokenizer != nullptr) return tokenizer;
  return errorf(ErrorCode::kInvalidArgument, "model: the checkpoint of {} has no tokenizer",
                model.name());
}

// Checks llama.cpp's fields, which apply only with "content".
Status check_content(const json& body) {
  if (get_field(body, "content").is_null()) {
    for (const char* name : {"add_special", "parse_special", "with_pieces"}) {
      if (!get_field(body, name).is_null())
        return errorf(ErrorCode::kInvalidArgument, "{}: belongs to content, which is not there",
                      name);
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
  const bool add_special = get_bool(body, "add_special"),
             parse = get_bool(body, "parse_special", true);
  const std::string text = get_string(body, "content");
  if (!model.pools())
    return model.session().encode(text, {.add_bos = add_special, .parse_special = parse});
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(model));
  return tokenizer->encode(text, {.add_special = add_special, .parse_special = parse});
}

Result<std::vector<TokenId>> tokens_of(const ServedModel& model, json& body) {
  if (!get_field(body, "messages").is_null()) {
    if (!get_field(body, "prompt").is_null())
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected a prompt or messages, got both");
    if (model.pools())
      return errorf(ErrorCode::kInvalidArgument, "messages: a model of vectors reads texts");
    ASSIGN_OR_RETURN(Conversation conversation, conversation_of_chat(body));
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
    return tokenizer->encode(get_string(body, "prompt"),
                             {.add_special = add_special, .parse_special = true});
  }
  return model.session().encode(get_string(body, "prompt"),
                                {.add_bos = add_special, .parse_special = true});
}

// The reply of /tokenize, generated in pieces while it is sent, since it may be much longer than
// the text.
struct Tokenized {
  ModelLease model;
  const Tokenizer* tokenizer = nullptr;  // set with pieces or texts
  std::vector<TokenId> ids;
  bool with_pieces = false, with_texts = false;
};

Result<Tokenized> tokenize(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked,
                   read_body(services, request, tokenize_request(), ModelUse::kEither));
  RETURN_IF_ERROR(check_read_text(services, request, asked.fields));
  RETURN_IF_ERROR(check_content(asked.fields));
  Tokenized result{.model = asked.model,
                   .ids = {},
                   .with_pieces = get_bool(asked.fields, "with_pieces"),
                   .with_texts = get_bool(asked.fields, "return_token_strs")};
  ASSIGN_OR_RETURN(result.ids, tokens_of(*asked.model, asked.fields));
  if (result.with_pieces || result.with_texts) {
    ASSIGN_OR_RETURN(result.tokenizer, tokenizer_of(*asked.model));
  }
  return result;
}

// Generates the reply's text in pieces of bounded size.
class TokensText {
 public:
  explicit TokensText(const Tokenized& of)
      : of_(of), pieces_(of.with_pieces), texts_(of.with_texts) {}

  // Appends the next piece; false: it was the last.
  bool next(std::string& out) {
    constexpr size_t kPerPiece = 2048;  // tokens: less than 20 ms
    if (part_ == 0) {
      fmt::format_to(std::back_inserter(out), R"({{"count":{},"max_model_len":{},"tokens":[)",
                     of_.ids.size(), of_.model->max_model_len());
      part_ = 1;
    }
    const size_t end = std::min(at_ + kPerPiece, of_.ids.size());
    for (; at_ < end; ++at_) {
      if (at_ > 0) out += ',';
      append(of_.ids[at_], out);
    }
    if (at_ < of_.ids.size()) return true;
    at_ = 0;
    out += part_ == 1 ? R"(],"token_strs":)" : "]";
    if (part_++ == 1 && texts_) {
      out += '[';
      return true;
    }
    out += part_ == 2 ? "null}" : "}";
    return false;
  }

 private:
  void append(TokenId id, std::string& out) const {
    if (part_ == 2) {
      out += dump(json(of_.tokenizer->piece(id)));
    } else if (pieces_) {
      fmt::format_to(std::back_inserter(out), R"({{"id":{},"piece":)", id);
      append_piece(id, out);
      out += '}';
    } else {
      fmt::format_to(std::back_inserter(out), "{}", id);
    }
  }
  // Appends the token's text, or its bytes if it is part of a character.
  void append_piece(TokenId id, std::string& out) const {
    const std::string bytes(of_.tokenizer->token_bytes(id));
    if (unicode::is_valid(bytes)) {
      out += json_text(bytes);
    } else {
      out += dump(json(std::vector<unsigned char>(bytes.begin(), bytes.end())));
    }
  }

  const Tokenized& of_;
  const bool pieces_, texts_;
  int part_ = 0;  // 1: ids, 2: texts
  size_t at_ = 0;
};

net::awaitable<void> send_tokens(Exchange& exchange, const Tokenized& tokenized) {
  TokensText text(tokenized);
  HttpReply reply;
  if (!text.next(reply.body)) co_return co_await exchange.reply(std::move(reply));
  std::string piece = std::exchange(reply.body, {});
  if (!co_await exchange.begin_stream(std::move(reply))) co_return;
  for (bool more = true;;) {
    if (!co_await exchange.write(piece)) co_return;
    if (!more) break;
    piece.clear();
    // yield to other handlers between pieces
    co_await net::post(exchange.executor(), net::use_awaitable);
    more = text.next(piece);
  }
  co_await exchange.end_stream();
}

Result<json> detokenize(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked,
                   read_body(services, request, detokenize_request(), ModelUse::kEither));
  ASSIGN_OR_RETURN(const Tokenizer* tokenizer, tokenizer_of(*asked.model));
  std::vector<TokenId> ids;
  size_t n_bytes = 0;
  const size_t most = most_text(services);
  for (const json& item : asked.fields["tokens"]) {
    if (item.get<int64_t>() >= tokenizer->vocab_size()) {
      return errorf(ErrorCode::kInvalidArgument, "tokens: expected ids from 0 to {}, got {}",
                    tokenizer->vocab_size() - 1, dump(item));
    }
    ids.push_back(item.get<TokenId>());
    n_bytes += tokenizer->token_bytes(ids.back()).size();
    if (n_bytes > most)
      return errorf(ErrorCode::kInvalidArgument,
                    "tokens: expected at most {} bytes of text, got more", most);
  }
  const std::string text = tokenizer->decode(ids, false);
  return json{{"prompt", text}, {"content", text}};
}

Result<json> apply_template(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody asked, read_body(services, request, apply_template_request()));
  RETURN_IF_ERROR(check_read_text(services, request, asked.fields));
  ASSIGN_OR_RETURN(AskedConversation conversation, conversation_of_chat(asked.fields));
  warn_client(request, conversation.warnings);
  conversation.any_length = true;
  std::string text;
  RETURN_IF_ERROR(asked.model->chat().read(std::move(conversation), text));
  return json{{"prompt", text}};
}

using Work = Result<json> (*)(Services& services, const HttpRequest& request);

net::awaitable<void> answer_with(Services& services, Exchange& exchange, Work work) {
  HttpReply reply;
  const auto answer = [&] {
    const Result<json> result = work(services, exchange.request());
    reply = result ? json_reply(*result) : error_reply(result.error());
  };
  if (!co_await run_on_text(services, exchange, exchange.request().body.size(), answer)) co_return;
  co_await exchange.reply(std::move(reply));
}

}  // namespace

net::awaitable<void> post_tokenize(Services& services, Exchange& exchange) {
  Result<Tokenized> tokenized;
  const auto work = [&] { tokenized = tokenize(services, exchange.request()); };
  if (!co_await run_on_text(services, exchange, exchange.request().body.size(), work)) co_return;
  if (!tokenized) co_return co_await exchange.reply(error_reply(tokenized.error()));
  co_await send_tokens(exchange, *tokenized);
}

net::awaitable<void> post_detokenize(Services& services, Exchange& exchange) {
  if (auto refused = check_text_body(services, exchange.request()))
    co_return co_await exchange.reply(std::move(*refused));
  co_await answer_with(services, exchange, detokenize);
}

net::awaitable<void> post_apply_template(Services& services, Exchange& exchange) {
  co_await answer_with(services, exchange, apply_template);
}

net::awaitable<void> get_tokenizer_info(Services& services, Exchange& exchange) {
  const auto lease = co_await model_of_query(services, exchange.request());
  if (!lease) co_return co_await exchange.reply(error_reply(lease.error()));
  const ServedModel& model = **lease;
  const auto found = tokenizer_of(model);
  if (!found) co_return co_await exchange.reply(error_reply(found.error()));
  const Tokenizer& tokenizer = **found;
  const auto token = [&](TokenId id) {
    return id == kNoToken ? json(nullptr) : json(tokenizer.piece(id));
  };
  const std::string chat_template = model.pools() ? "" : model.chat().chat_template();
  const json body = {
      {"tokenizer_class", "PenstockTokenizer"},
      {"bos_token", token(tokenizer.bos())},
      {"eos_token", token(tokenizer.eos())},
      {"pad_token", token(tokenizer.pad())},
      {"unk_token", token(tokenizer.unk())},
      {"chat_template", chat_template.empty() ? json(nullptr) : json(chat_template)}};
  co_await exchange.reply(json_reply(body));
}

}  // namespace penstock
