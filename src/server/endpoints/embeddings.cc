// POST /v1/embeddings (OpenAI's), /pooling and /classify (vLLM's).
#include <algorithm>

#include "server/api/pooling.h"
#include "server/api/schema_parts.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {
namespace {

struct PoolingAsked {
  ModelLease model;
  std::string name;  // as requested
  PoolingCall call;
  bool as_base64 = false;
};

Status read_vectors(const json& body, PoolingKind& kind) {
  kind.dimensions = static_cast<int>(get_int(body, "dimensions", 0));
  for (const char* name : {"normalize", "use_activation"}) {
    if (!get_field(body, name).is_boolean()) continue;
    kind.normalize = get_bool(body, name);
    kind.use_activation = *kind.normalize;
  }
  return {};
}

Result<PoolingAsked> read_pooling(Services& services, const HttpRequest& request,
                                  const nlohmann::json& schema, PoolingKind::Task task) {
  ASSIGN_OR_RETURN(const ApiBody body, read_body(services, request, schema, ModelUse::kVectors));
  PoolingAsked asked{.model = body.model, .name = body.name(), .call = pooling_call(body)};
  asked.call.kind.task = task;
  const std::string named = get_string(body.fields, "task");
  if (named == "token_embed") asked.call.kind.task = PoolingKind::Task::kEmbedTokens;
  if (named == "classify") asked.call.kind.task = PoolingKind::Task::kClassify;
  const bool classifies = asked.call.kind.task == PoolingKind::Task::kClassify;
  if (classifies && body.model->pooling().model().info().labels.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "model: {} has no classification head",
                  body.model->name());
  }
  RETURN_IF_ERROR(read_vectors(body.fields, asked.call.kind));
  asked.as_base64 = get_string(body.fields, "encoding_format") == "base64";
  RETURN_IF_ERROR(read_inputs(body.fields, *body.model, asked.call));
  return asked;
}

// Formats the reply; vectors are written directly into the text, since they are most of it.
std::string vectors_body(json reply, const PoolingQueue::Vectors& vectors, const char* object,
                         const char* field, bool as_base64, std::span<const size_t> n_rows) {
  std::string body = dump(reply);
  body.pop_back();
  body += R"(,"data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    fmt::format_to(std::back_inserter(body), R"({}{{"object":"{}","index":{},"{}":)",
                   i > 0 ? "," : "", object, i, field);
    const std::span<const float> all(vectors[i]);
    if (as_base64) {
      body += '"' + base64(all) + '"';
    } else if (n_rows.empty()) {
      append_numbers(all, body);
    } else {
      const size_t width = all.size() / n_rows[i];
      body += '[';
      for (size_t row = 0; row < n_rows[i]; ++row) {
        if (row > 0) body += ',';
        append_numbers(all.subspan(row * width, width), body);
      }
      body += ']';
    }
    body += '}';
  }
  return body + "]}";
}

struct ReplyForm {
  const char *prefix, *object, *field;
};

net::awaitable<void> answer_vectors(Services& services, Exchange& exchange,
                                    const nlohmann::json& schema, ReplyForm form) {
  Result<PoolingAsked> asked;
  co_await services.run_apart(exchange, [&] {
    asked = read_pooling(services, exchange.request(), schema, PoolingKind::Task::kEmbed);
  });
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error(), "input"));
  BodyBudget budget;
  if (const Status fits =
          take_reply(services, exchange, *asked->model, asked->call, asked->as_base64, budget);
      !fits)
    co_return co_await exchange.reply(error_reply(fits.error(), "input"));
  const json head = pooling_reply(form.prefix, asked->name, n_tokens(asked->call));
  std::vector<size_t> n_rows;
  if (asked->call.kind.task == PoolingKind::Task::kEmbedTokens) n_rows = asked->call.lengths;
  auto vectors = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!vectors) co_return co_await exchange.reply(error_reply(vectors.error(), "input"));
  size_t n_numbers = 0;
  for (const auto& vector : *vectors) n_numbers += vector.size();
  HttpReply reply;
  const auto write = [&] {
    reply.body = vectors_body(head, *vectors, form.object, form.field, asked->as_base64, n_rows);
  };
  co_await services.run_apart(exchange, n_numbers * kBytesOfNumber, write);
  co_await exchange.reply(std::move(reply));
}

nlohmann::json vector_fields() {
  using namespace schema;  // NOLINT: a schema
  Json fields = pooling_fields();
  fields["input"] = input_field();
  fields["encoding_format"] =
      one_of({"float", "base64"}, "base64: the bytes of 32-bit floats, little-endian");
  fields["embed_dtype"] = only("float32", "numbers are 32-bit floats");
  fields["endianness"] = one_of({"native", "little"}, "of base64");
  fields["dimensions"] = integer(1, INT32_MAX, "the first so many of a vector (Matryoshka)");
  fields["normalize"] = boolean("to length 1; as the checkpoint says when absent");
  fields["use_activation"] = boolean("the same; of classes: probabilities instead of logits");
  fields["prompt_name"] = text("of the checkpoint's prompts, put before every text");
  fields["messages"] = refused("give texts as input");
  return fields;
}

nlohmann::json list_reply(nlohmann::json item) {
  using namespace schema;  // NOLINT: a schema
  const Json usage = open({{"prompt_tokens", plain("integer")}, {"total_tokens", plain("integer")}},
                          {"prompt_tokens", "total_tokens"});
  return open({{"id", plain("string")},
               {"object", {{"enum", {"list"}}}},
               {"created", plain("integer")},
               {"model", plain("string")},
               {"data", {{"type", "array"}, {"items", std::move(item)}}},
               {"usage", usage}},
              {"id", "object", "created", "model", "data", "usage"});
}

}  // namespace

const nlohmann::json& embeddings_request() {
  static const nlohmann::json value = schema::closed(vector_fields(), {"input"});
  return value;
}

const nlohmann::json& embeddings_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = list_reply(open({{"object", {{"enum", {"embedding"}}}},
                                             {"index", plain("integer")},
                                             {"embedding", {{"type", {"array", "string"}}}}},
                                            {"object", "index", "embedding"}));
  return value;
}

const nlohmann::json& pooling_request() {
  static const nlohmann::json value = [] {
    nlohmann::json fields = vector_fields();
    fields["task"] = schema::one_of({"embed", "token_embed", "classify"},
                                    "a vector of each input, one of each token, or its classes");
    return schema::closed(std::move(fields), {"input"});
  }();
  return value;
}

const nlohmann::json& pooling_reply_schema() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = list_reply(open({{"object", {{"enum", {"pooling"}}}},
                                             {"index", plain("integer")},
                                             {"data", {{"type", {"array", "string"}}}}},
                                            {"object", "index", "data"}));
  return value;
}

const nlohmann::json& classify_request() {
  static const nlohmann::json value = [] {
    nlohmann::json fields = pooling_fields();
    fields["input"] = input_field();
    fields["use_activation"] =
        schema::boolean("probabilities (also when absent) instead of logits");
    return schema::closed(std::move(fields), {"input"});
  }();
  return value;
}

const nlohmann::json& classify_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      list_reply(open({{"index", plain("integer")},
                       {"label", plain("string")},
                       {"probs", {{"type", "array"}, {"items", plain("number")}}},
                       {"num_classes", plain("integer")}},
                      {"index", "label", "probs", "num_classes"}));
  return value;
}

net::awaitable<void> post_embeddings(Services& services, Exchange& exchange) {
  co_await answer_vectors(services, exchange, embeddings_request(),
                          {"embd-", "embedding", "embedding"});
}

net::awaitable<void> post_pooling(Services& services, Exchange& exchange) {
  co_await answer_vectors(services, exchange, pooling_request(), {"pool-", "pooling", "data"});
}

net::awaitable<void> post_classify(Services& services, Exchange& exchange) {
  Result<PoolingAsked> asked;
  co_await services.run_apart(exchange, [&] {
    asked = read_pooling(services, exchange.request(), classify_request(),
                         PoolingKind::Task::kClassify);
  });
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error(), "input"));
  BodyBudget budget;
  if (const Status fits = take_reply(services, exchange, *asked->model, asked->call, false, budget);
      !fits)
    co_return co_await exchange.reply(error_reply(fits.error(), "input"));
  json reply = pooling_reply("classify-", asked->name, n_tokens(asked->call));
  const std::vector<std::string> labels = asked->model->pooling().model().info().labels;
  const auto rows = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!rows) co_return co_await exchange.reply(error_reply(rows.error(), "input"));
  reply["data"] = json::array();
  HttpReply whole;
  co_await services.run_apart(exchange, rows->size() * labels.size() * kBytesOfNumber, [&] {
    for (const std::vector<float>& row : *rows) {
      const auto best = static_cast<size_t>(std::ranges::max_element(row) - row.begin());
      reply["data"].push_back({{"index", reply["data"].size()},
                               {"label", labels[best]},
                               {"probs", row},
                               {"num_classes", row.size()}});
    }
    whole = json_reply(reply);
  });
  co_await exchange.reply(std::move(whole));
}

}  // namespace penstock
