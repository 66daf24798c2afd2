// The remaining routes of Ollama's API: models (/api/tags, /api/show, /api/ps, /api/version),
// /api/embed and /api/embeddings, and refusals of model management.

#include "base/sha256.h"
#include "penstock/version.h"
#include "server/api/api_request.h"
#include "server/api/ollama.h"
#include "server/api/pooling.h"
#include "server/api/schema_parts.h"
#include "server/api/schemas.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema ollama_show_request, ollama_embed_request, ollama_embeddings_request;

namespace {

// A hash of the model's name and settings, not of its files: clients display parts of a digest, so
// that one is required.
std::string model_digest(const ServedModel& model) {
  return sha256_hex(
      fmt::format("{}\n{}", model.name(), weight_bytes_of(model.settings().engine.model)));
}

// The family is known only while the model is loaded.
json model_details(ServedModel& model) {
  const ModelLease lease = model.lease(false);
  const std::string family = lease == nullptr ? "" : lease->info().architecture;
  const EngineConfig& config = model.settings().engine;
  return {
      {"parent_model", ""},   {"format", config.model.ends_with(".gguf") ? "gguf" : "safetensors"},
      {"family", family},     {"families", json::array({family})},
      {"parameter_size", ""}, {"quantization_level", config.quantize}};
}

std::string modified_at(const ServedModel& model) {
  return rfc3339(std::chrono::system_clock::time_point(std::chrono::seconds(model.created())));
}

json listed_model(ServedModel& model, const std::string& name) {
  return {{"name", name},
          {"model", name},
          {"size", weight_bytes_of(model.settings().engine.model)},
          {"digest", model_digest(model)},
          {"details", model_details(model)}};
}

// Adds the fields of one route, and returns false to skip the model.
using AddModel = std::function<bool(ServedModel&, json&)>;

// Lists every name of every model that the key may use.
json list_models(Services& services, Exchange& exchange, const AddModel& add) {
  json body = {{"models", json::array()}};
  for (const auto& model : services.models.all()) {
    if (!model->serves(record_of(exchange).key)) continue;
    for (const std::string& name : model->names()) {
      json one = listed_model(*model, name);
      if (add(*model, one)) body["models"].push_back(std::move(one));
    }
  }
  return body;
}

// The sizes are those of files.
net::awaitable<void> answer_models(Services& services, Exchange& exchange, AddModel add) {
  HttpReply reply;
  co_await services.run_chore(exchange,
                              [&] { reply = json_reply(list_models(services, exchange, add)); });
  co_await exchange.reply(std::move(reply));
}

json capabilities(const ServedModel& model) {
  if (model.pools()) return json::array({"embedding"});
  json list = json::array({"completion"});
  if (model.chat().chat_template().find("tools") != std::string::npos) list.push_back("tools");
  if (model.chat().thinking_budget(0, false)) list.push_back("thinking");
  return list;
}

Result<json> show_model(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const ApiBody asked,
                   read_body(services, request, ollama_show_request(), ModelUse::kEither));
  ServedModel& model = *asked.model;
  const std::string& architecture = model.info().architecture;
  return json{{"modelfile", ""},
              {"parameters", ""},
              {"template", model.pools() ? std::string() : model.chat().chat_template()},
              {"details", model_details(model)},
              {"model_info",
               {{"general.architecture", architecture},
                {architecture + ".context_length", model.max_model_len()}}},
              {"capabilities", capabilities(model)},
              {"modified_at", modified_at(model)}};
}

struct EmbedAsked {
  ModelLease model;
  PoolingCall call;
  std::string name;
  bool one = false;  // the older route, which takes one text
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

Result<EmbedAsked> read_embed(Services& services, const HttpRequest& request, bool one) {
  const nlohmann::json& schema = one ? ollama_embeddings_request() : ollama_embed_request();
  ASSIGN_OR_RETURN(const ApiBody asked, read_body(services, request, schema, ModelUse::kVectors));
  RETURN_IF_ERROR(read_keep_alive(services, request, asked.fields, *asked.model));
  EmbedAsked result{.model = asked.model,
                    .call = pooling_call(asked),
                    .name = ollama_name(asked.fields, *asked.model),
                    .one = one};
  result.call.kind.dimensions = static_cast<int>(get_int(asked.fields, "dimensions", 0));
  // the older route returns vectors without normalization
  if (!one) result.call.kind.normalize = true;
  const json& input = get_field(asked.fields, one ? "prompt" : "input");
  std::vector<std::string> texts;
  if (input.is_string() && !(one && input == "")) texts.push_back(input);
  if (input.is_array()) texts = input.get<std::vector<std::string>>();
  json options = json::object();
  if (get_bool(asked.fields, "truncate", true)) options["truncate_prompt_tokens"] = -1;
  if (!texts.empty()) RETURN_IF_ERROR(add_texts(texts, options, *asked.model, result.call));
  return result;
}

std::string embed_body(const EmbedAsked& asked, const PoolingQueue::Vectors& vectors,
                       int64_t n_tokens) {
  std::string rows;
  for (const std::vector<float>& vector : vectors) {
    if (!rows.empty()) rows += ',';
    append_numbers(vector, rows);
  }
  if (asked.one) return fmt::format(R"({{"embedding":{}}})", rows.empty() ? "[]" : rows);
  const auto taken =
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - asked.start).count();
  return fmt::format(
      R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
      dump(asked.name), rows, taken, n_tokens);
}

net::awaitable<void> answer_embed(Services& services, Exchange& exchange, bool one) {
  Result<EmbedAsked> asked;
  co_await services.run_apart(exchange,
                              [&] { asked = read_embed(services, exchange.request(), one); });
  if (!asked) co_return co_await exchange.reply(ollama_error(asked.error()));
  BodyBudget budget;
  if (const Status fits = take_reply(services, exchange, *asked->model, asked->call, false, budget);
      !fits)
    co_return co_await exchange.reply(ollama_error(fits.error()));
  const int64_t n = n_tokens(asked->call);
  Result<PoolingQueue::Vectors> vectors;
  if (!asked->call.inputs.empty())
    vectors = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!vectors) co_return co_await exchange.reply(ollama_error(vectors.error()));
  HttpReply reply;
  const size_t n_numbers = vectors->empty() ? 0 : vectors->size() * vectors->front().size();
  co_await services.run_apart(exchange, n_numbers * kBytesOfNumber,
                              [&] { reply.body = embed_body(*asked, *vectors, n); });
  co_await exchange.reply(std::move(reply));
}

nlohmann::json embed_fields() {
  using namespace schema;  // NOLINT: a schema
  return {{"model", text("the served model's name, with or without :latest")},
          {"options", object("no effect: nothing is sampled")},
          {"keep_alive", keep_alive_field()}};
}

}  // namespace

const nlohmann::json& ollama_show_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      closed({{"model", text("the served model's name, with or without :latest")},
              {"verbose", boolean("no effect: there is nothing more to show")},
              {"name", only("", "an older name of model")},
              {"system", only("", "not supported by this server")},
              {"template", only("", "not supported by this server")},
              {"options", refused("not supported by this server")}});
  return value;
}

const nlohmann::json& ollama_embed_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = embed_fields();
    const Json texts = {{"type", "array"},
                        {"items", plain("string")},
                        {"maxItems", 2048},
                        {"title", "a list of at most 2048 texts"}};
    fields["input"] = {{"anyOf", {plain("string"), texts}}, {"title", "a text or a list of texts"}};
    fields["truncate"] = boolean("true (also when absent): texts that are too long are cut");
    fields["dimensions"] = integer(1, INT32_MAX, "the first so many of a vector (Matryoshka)");
    return closed(std::move(fields), {"input"});
  }();
  return value;
}

const nlohmann::json& ollama_embeddings_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = embed_fields();
    fields["prompt"] = plain("string");
    return closed(std::move(fields), {"prompt"});
  }();
  return value;
}

const nlohmann::json& ollama_models_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      open({{"models", {{"type", "array"}, {"items", plain("object")}}}}, {"models"});
  return value;
}

const nlohmann::json& ollama_show_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value =
      open({{"details", plain("object")},
            {"model_info", plain("object")},
            {"capabilities", {{"type", "array"}, {"items", plain("string")}}}},
           {"details", "model_info", "capabilities"});
  return value;
}

const nlohmann::json& ollama_embed_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open(
      {{"model", plain("string")}, {"embeddings", {{"type", "array"}, {"items", plain("array")}}}},
      {"model", "embeddings"});
  return value;
}

const nlohmann::json& ollama_embeddings_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = open({{"embedding", plain("array")}}, {"embedding"});
  return value;
}

net::awaitable<void> get_ollama_tags(Services& services, Exchange& exchange) {
  co_await answer_models(services, exchange, [](ServedModel& model, json& one) {
    one["modified_at"] = modified_at(model);
    return true;
  });
}

net::awaitable<void> get_ollama_ps(Services& services, Exchange& exchange) {
  co_await answer_models(services, exchange, [](ServedModel& model, json& one) {
    const ServedModel::Condition now = model.condition();
    const ModelLease lease = model.lease(false);
    if (lease == nullptr) return false;
    one["size_vram"] = lease->info().backend.starts_with("cpu") ? 0 : lease->info().weight_bytes;
    one["context_length"] = lease->max_model_len();
    one["expires_at"] = "9999-12-31T23:59:59Z";  // never
    if (now.idle_timeout && !model.settings().pinned) {
      const auto left = now.last_used + *now.idle_timeout - std::chrono::steady_clock::now();
      one["expires_at"] =
          rfc3339(std::chrono::system_clock::now() +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
    }
    return true;
  });
}

net::awaitable<void> get_ollama_version(Services&, Exchange& exchange) {
  const json body = {{"version", kVersion}};
  co_await exchange.reply(json_reply(body));
}

net::awaitable<void> post_ollama_show(Services& services, Exchange& exchange) {
  Result<json> result;
  co_await services.run_apart(exchange, [&] { result = show_model(services, exchange.request()); });
  if (!result) co_return co_await exchange.reply(ollama_error(result.error()));
  co_await exchange.reply(json_reply(*result));
}

net::awaitable<void> post_ollama_embed(Services& services, Exchange& exchange) {
  co_await answer_embed(services, exchange, false);
}

net::awaitable<void> post_ollama_embeddings(Services& services, Exchange& exchange) {
  co_await answer_embed(services, exchange, true);
}

net::awaitable<void> refuse_ollama(Services&, Exchange& exchange) {
  const Error error{
      ErrorCode::kUnsupported,
      fmt::format("{}: this server's models are chosen when it starts (penstock serve -m; penstock "
                  "pull fetches one)",
                  exchange.request().path)};
  co_await exchange.reply(ollama_error(error));
}

}  // namespace penstock
