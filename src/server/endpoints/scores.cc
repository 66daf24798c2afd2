// POST /v1/score (vLLM's), /v1/rerank (Jina's; TEI's for bodies with texts) and /v2/rerank
// (Cohere's): similarity of texts by a cross-encoder, or by the cosine of embeddings.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ordered_json.h"
#include "server/api/pooling.h"
#include "server/api/schema_parts.h"
#include "server/http/apart_threads.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int kMostTexts = 2048;
// About how much more work a body is than one that is read as it is: its first text may become
// tokens with each of the others.
constexpr size_t kOfPairs = 16;

// The pairs of texts for a cross-encoder, or vectors to compare.
struct ScoreAsked {
  ModelLease model;
  std::string name;  // as requested
  PoolingCall call;
  bool cross = false;
  // bi-encoder: numbers of texts; n_first is 1 or n_second
  size_t n_first = 0, n_second = 0;
  std::vector<std::string> documents;  // rerank only
  size_t top_n = 0;
  bool returns_texts = false;
  bool is_tei = false;  // reply in the form of Text Embeddings Inference
};

std::string text_in(const json& item) {
  return item.is_string() ? item.get<std::string>() : item["text"].get<std::string>();
}

std::vector<std::string> texts_in(const json& value) {
  if (!value.is_array()) return {text_in(value)};
  std::vector<std::string> texts;
  for (const json& item : value) texts.push_back(text_in(item));
  return texts;
}

// first: one text, or as many as `second`.
Status read_score_texts(const std::vector<std::string>& first,
                        const std::vector<std::string>& second, const json& body,
                        ScoreAsked& asked) {
  if (first.size() != 1 && first.size() != second.size()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "text_1: expected one text or as many as in the second list ({}), got {}",
                  second.size(), first.size());
  }
  asked.n_first = first.size(), asked.n_second = second.size();
  const ServedModel& model = *asked.model;
  const size_t n_classes = model.pooling().model().info().labels.size();
  if (n_classes > 1) {
    return errorf(ErrorCode::kInvalidArgument,
                  "model: {} has {} classes: scores need a head of one", model.name(), n_classes);
  }
  asked.cross = n_classes == 1;
  if (asked.cross) {
    asked.call.kind.use_activation = get_bool(body, "use_activation", true);
    return add_pairs(first, second, body, model, asked.call);
  }
  std::vector<std::string> all = first;
  all.insert(all.end(), second.begin(), second.end());
  return add_texts(all, body, model, asked.call);
}

Result<ScoreAsked> read_score(Services& services, const HttpRequest& request,
                              const nlohmann::json& schema) {
  ASSIGN_OR_RETURN(const ApiBody body, read_body(services, request, schema, ModelUse::kVectors));
  ScoreAsked asked{.model = body.model, .name = body.name(), .call = pooling_call(body)};
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}};
  for (const auto& [one, other] : kNames) {
    const json &first = get_field(body.fields, one), &second = get_field(body.fields, other);
    if (first.is_null() || second.is_null()) continue;
    RETURN_IF_ERROR(read_score_texts(texts_in(first), texts_in(second), body.fields, asked));
    return asked;
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      "body: expected text_1 and text_2, queries and documents, or data_1 and data_2");
}

// Refuses fields that belong to the other form of the request.
Status check_rerank_form(const json& body, bool is_tei) {
  if (is_tei != get_field(body, "documents").is_null())
    return errorf(ErrorCode::kInvalidArgument, "documents: expected documents or texts, got {}",
                  is_tei ? "both" : "neither");
  constexpr const char* kOfTei[] = {"raw_scores", "return_text", "truncate",
                                    "truncation_direction"};
  constexpr const char* kOfJina[] = {"return_documents", "use_activation"};
  for (const char* name : is_tei ? std::span<const char* const>(kOfJina) : kOfTei) {
    if (!get_field(body, name).is_null())
      return errorf(ErrorCode::kInvalidArgument, "{}: belongs to {}, which are not there", name,
                    is_tei ? "documents" : "texts");
  }
  return {};
}

// Renames the fields of TEI's request.
void rename_tei_fields(json& body) {
  reserve_members(body, body.size() + 3);
  body["documents"] = take_field(body, "texts");
  body["use_activation"] = !get_bool(body, "raw_scores");
  if (get_bool(body, "truncate") && !truncates(body)) body["truncate_prompt_tokens"] = -1;
}

Result<ScoreAsked> read_rerank(Services& services, const HttpRequest& request,
                               const nlohmann::json& schema) {
  ASSIGN_OR_RETURN(ApiBody body, read_body(services, request, schema, ModelUse::kVectors));
  ScoreAsked asked{.model = body.model, .name = body.name(), .call = pooling_call(body)};
  asked.is_tei = !get_field(body.fields, "texts").is_null();
  RETURN_IF_ERROR(check_rerank_form(body.fields, asked.is_tei));
  asked.returns_texts =
      asked.is_tei ? get_bool(body.fields, "return_text")
                   : get_bool(body.fields, "return_documents", !request.path.starts_with("/v2"));
  if (asked.is_tei) rename_tei_fields(body.fields);
  asked.documents = texts_in(body.fields["documents"]);
  RETURN_IF_ERROR(
      read_score_texts({text_in(body.fields["query"])}, asked.documents, body.fields, asked));
  const int64_t top_n = get_int(body.fields, "top_n", 0);
  asked.top_n = top_n > 0 ? std::min(static_cast<size_t>(top_n), asked.documents.size())
                          : asked.documents.size();
  return asked;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0, length_a = 0, length_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += double{a[i]} * b[i];
    length_a += double{a[i]} * a[i];
    length_b += double{b[i]} * b[i];
  }
  return product / std::max(std::sqrt(length_a) * std::sqrt(length_b), 1e-12);
}

std::vector<double> scores_of(const ScoreAsked& asked, const PoolingQueue::Vectors& rows) {
  std::vector<double> scores;
  for (size_t i = 0; i < asked.n_second; ++i) {
    scores.push_back(asked.cross
                         ? double{rows[i][0]}
                         : cosine(rows[asked.n_first == 1 ? 0 : i], rows[asked.n_first + i]));
  }
  return scores;
}

// Returns the best results in descending order, with texts if requested.
json ranked(ScoreAsked& asked, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  json results = json::array();
  for (size_t i = 0; i < asked.top_n; ++i) {
    json result = {{"index", order[i]},
                   {asked.is_tei ? "score" : "relevance_score", scores[order[i]]}};
    std::string& text = asked.documents[order[i]];
    if (asked.returns_texts && asked.is_tei) result["text"] = std::move(text);
    if (asked.returns_texts && !asked.is_tei) result["document"] = {{"text", std::move(text)}};
    results.push_back(std::move(result));
  }
  return results;
}

nlohmann::json text_or_texts(const char* help) {
  using namespace schema;  // NOLINT: a schema
  Json texts = {
      {"type", "array"}, {"items", plain("string")}, {"minItems", 1}, {"maxItems", kMostTexts}};
  texts["title"] = "a list of texts";
  return {{"anyOf", {plain("string"), texts, {{"type", "null"}}}}, {"description", help}};
}

}  // namespace

const nlohmann::json& score_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = pooling_fields();
    for (const char* name : {"text_1", "queries", "data_1"})
      fields[name] = text_or_texts("one text, or as many as there are second ones");
    for (const char* name : {"text_2", "documents", "items", "data_2"})
      fields[name] = text_or_texts("second texts");
    fields["use_activation"] =
        boolean("a cross-encoder's scores as its checkpoint says, instead of logits");
    fields["prompt_name"] = text("of the checkpoint's prompts, put before every text");
    return closed(std::move(fields));
  }();
  return value;
}

const nlohmann::json& score_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open({{"id", plain("string")},
                                  {"object", {{"enum", {"list"}}}},
                                  {"model", plain("string")},
                                  {"data",
                                   {{"type", "array"},
                                    {"items", open({{"index", plain("integer")},
                                                    {"object", {{"enum", {"score"}}}},
                                                    {"score", plain("number")}},
                                                   {"index", "object", "score"})}}}},
                                 {"id", "object", "model", "data", "usage"});
  return value;
}

const nlohmann::json& rerank_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = pooling_fields();
    const Json document = open({{"text", plain("string")}}, {"text"});
    const auto texts = [](Json item, const char* help) {
      Json list = field({"array"}, help);
      list["items"] = std::move(item);
      list["minItems"] = 1;
      list["maxItems"] = kMostTexts;
      return list;
    };
    fields["query"] = plain("string");
    fields["documents"] =
        texts({{"anyOf", {plain("string"), document}}}, "what is ranked; or give texts");
    fields["texts"] = texts(plain("string"), "TEI's documents; the reply is a list in its form");
    fields["return_text"] = boolean("with texts: the reply has them");
    fields["raw_scores"] = boolean("with texts: a cross-encoder's logits");
    fields["truncate"] = boolean("with texts: cut what is too long, as truncate_prompt_tokens: -1");
    fields["truncation_direction"] = one_of({"right", "Right"}, "with texts: the end is cut");
    fields["top_n"] = integer(0, INT32_MAX, "the best so many; 0 or absent: all");
    fields["return_documents"] = boolean("with the texts; absent: yes, and no below /v2");
    fields["max_tokens_per_doc"] =
        refused("use truncate_prompt_tokens, which counts the query too");
    fields["rank_fields"] = refused("documents are texts");
    fields["use_activation"] =
        boolean("a cross-encoder's scores as its checkpoint says, instead of logits");
    fields["prompt_name"] = text("of the checkpoint's prompts, put before every text");
    return closed(std::move(fields), {"query"});
  }();
  return value;
}

const nlohmann::json& rerank_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    const auto list_of = [](const char* score) {
      return Json{{"type", "array"},
                  {"items", open({{"index", plain("integer")}, {score, plain("number")}},
                                 {"index", score})}};
    };
    const Json object = open({{"id", plain("string")},
                              {"model", plain("string")},
                              {"results", list_of("relevance_score")}},
                             {"id", "model", "results", "usage"});
    return Json{{"anyOf", {object, list_of("score")}}};
  }();
  return value;
}

net::awaitable<void> post_score(Services& services, Exchange& exchange) {
  Result<ScoreAsked> asked;
  const size_t n_bytes = exchange.request().body.size();
  co_await services.run_apart(exchange, kOfPairs * n_bytes, [&] {
    asked = read_score(services, exchange.request(), score_request());
  });
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error(), "text_2"));
  json reply = pooling_reply("score-", asked->name, n_tokens(asked->call));
  const auto rows = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!rows) co_return co_await exchange.reply(error_reply(rows.error(), "text_2"));
  HttpReply whole;
  co_await services.run_apart(exchange, [&] {
    reply["data"] = json::array();
    for (const double score : scores_of(*asked, *rows))
      reply["data"].push_back(
          {{"index", reply["data"].size()}, {"object", "score"}, {"score", score}});
    whole = json_reply(reply);
  });
  co_await exchange.reply(std::move(whole));
}

net::awaitable<void> post_rerank(Services& services, Exchange& exchange) {
  Result<ScoreAsked> asked;
  const size_t n_bytes = exchange.request().body.size();
  co_await services.run_apart(exchange, kOfPairs * n_bytes, [&] {
    asked = read_rerank(services, exchange.request(), rerank_request());
  });
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error(), "documents"));
  json reply = pooling_reply("rerank-", asked->name, n_tokens(asked->call));
  reply.erase("object");
  const auto rows = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!rows) co_return co_await exchange.reply(error_reply(rows.error(), "documents"));
  if (exchange.request().path.starts_with("/v2"))
    reply["meta"] = {{"api_version", {{"version", "2"}}}, {"billed_units", {{"search_units", 1}}}};
  HttpReply whole;
  co_await services.run_apart(exchange, [&] {  // the reply may repeat the documents
    json results = ranked(*asked, scores_of(*asked, *rows));
    if (!asked->is_tei) reply["results"] = std::move(results);
    whole = json_reply(asked->is_tei ? results : reply);
  });
  co_await exchange.reply(std::move(whole));
}

}  // namespace penstock
