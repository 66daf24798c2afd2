#include "server/api/api_request.h"

#include <algorithm>
#include <cmath>

#include "base/locale_free.h"
#include "frontend/params_json.h"
#include "server/api/json_check.h"
#include "server/api/json_reader.h"
#include "server/api/structured.h"
#include "server/http/unattended_exchange.h"
#include "server/replies/cache/kept_replies.h"
#include "server/routing/client_reason.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/config.h"
#include "server/services/model_loads.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// Checks the fields of a body; unknown ones are removed with a warning.
Status check_fields(const Services& services, const HttpRequest& request,
                    const nlohmann::json& schema, json& body) {
  if (services.config.strict_fields) return check_json(schema, body);
  std::vector<std::string> unlisted;
  RETURN_IF_ERROR(check_listed(schema, body, unlisted));
  for (const std::string& path : unlisted)
    warn_client(request, path + ": this server knows no such field, it is left out");
  return {};
}

// Returns the model name in the body; Ollama's clients may append a tag to a name without one.
std::string served_name(const Services& services, const HttpRequest& request, const json& body) {
  if (!record_of(request).model.empty()) return record_of(request).model;
  constexpr std::string_view kTag = ":latest";
  std::string name = get_string(body, "model");
  const bool tagged = name.size() > kTag.size() && name.ends_with(kTag);
  if (tagged && request.path.starts_with("/api/") &&
      !services.models.find(name, record_of(request).key))
    name.resize(name.size() - kTag.size());
  return name;
}

}  // namespace

// Lists of token ids as long as the context must always fit.
size_t most_values(const Services& services) {
  constexpr size_t kLeast = size_t{8} << 20, kPerToken = 64;
  size_t bytes = kLeast;
  for (const auto& model : services.models.all())
    bytes = std::max(bytes, kPerToken * static_cast<size_t>(model->max_model_len()));
  return bytes;
}

Status check_logprobs(const Services& services, const ServedModel& model, int64_t asked,
                      const char* field) {
  const int most = services.config.max_logprobs;
  const int64_t n = asked == -1 ? model.engine().info().vocab_size : asked;
  if (most < 0 || (n >= 0 && n <= most)) return {};
  return errorf(ErrorCode::kInvalidArgument, "{}: expected 0 to {} (see --max-logprobs), got {}",
                field, most, asked);
}

Result<json> read_json_body(const Services& services, const HttpRequest& request) {
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    return errorf(ErrorCode::kUnsupported,
                  "body: compressed bodies are not supported (Content-Encoding: {})", encoding);
  }
  ASSIGN_OR_RETURN(json body, read_json(request.body, most_values(services)));
  if (!body.is_object()) return errorf(ErrorCode::kInvalidArgument, "body: expected a JSON object");
  return body;
}

Result<ApiBody> read_body(Services& services, const HttpRequest& request,
                          const nlohmann::json& schema, ModelUse use) {
  ASSIGN_OR_RETURN(json body, read_json_body(services, request));
  RETURN_IF_ERROR(check_fields(services, request, schema, body));
  if (const size_t most = most_text(services); truncates(body) && request.body.size() > most) {
    return errorf(ErrorCode::kInvalidArgument,
                  "truncate_prompt_tokens: expected a body of at most {} bytes, got {}", most,
                  request.body.size());
  }
  const std::string name = served_name(services, request, body);
  ASSIGN_OR_RETURN(ModelLease model, lease_named(services, request, name));
  ServedAdapterRef adapter = model->adapters().find(name);
  // unloaded in the meantime
  if (adapter == nullptr && !services.models.find(name, record_of(request).key))
    return errorf(ErrorCode::kNotFound, "model: {} was unloaded", name);
  if (use == ModelUse::kText && model->pools()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "model: {} gives vectors and no text: it answers /v1/embeddings, /pooling, /classify, "
        "/v1/score and /v1/rerank",
        model->name());
  }
  if (use == ModelUse::kVectors && !model->pools()) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "model: {} is served for text; `penstock serve --runner pooling` serves it for vectors",
        model->name());
  }
  return ApiBody{std::move(body), std::move(model), std::move(adapter),
                 record_of(request).background};
}

size_t most_text(const Services& services) {
  constexpr size_t kLeast = size_t{4} << 20, kPerToken = 8;
  size_t bytes = kLeast;
  for (const auto& model : services.models.all())
    bytes = std::max(bytes, kPerToken * static_cast<size_t>(model->max_model_len()));
  return bytes;
}

std::optional<HttpReply> check_text_body(const Services& services, const HttpRequest& request) {
  const size_t most = most_text(services);
  if (request.body.size() <= most) return std::nullopt;
  return error_reply(request, 413,
                     fmt::format("body: expected at most {} bytes where a text is not for a model "
                                 "to answer, got {}: cut it",
                                 most, request.body.size()));
}

std::string model_named_in(const Services& services, const HttpRequest& request) {
  const auto body = read_json(request.body, most_values(services));
  return body && body->is_object() ? served_name(services, request, *body) : "";
}

std::string model_in_query(const HttpRequest& request) {
  const auto given = request.query.find("model");
  return given == request.query.end() ? "" : given->second;
}

Result<ModelLease> lease_named(const Services& services, const HttpRequest& request,
                               std::string_view name) {
  if (request.record == nullptr) return services.models.lease(name);
  RequestRecord& record = *request.record;
  ASSIGN_OR_RETURN(const ServedModel* const named, services.models.find(name, record.key));
  const auto held = std::ranges::find_if(
      record.leases, [named](const ModelLease& one) { return one.get() == named; });
  ModelLease lease = held != record.leases.end() ? *held : nullptr;
  if (lease == nullptr) {
    ASSIGN_OR_RETURN(lease, services.models.lease(name, record.key));
    if (!record.cut) return lease;
  }
  lease = lease->lease_again(record.cut);
  record.leases = {lease};  // the others may go
  return lease;
}

net::awaitable<Result<ModelLease>> model_of_query(Services& services, const HttpRequest& request) {
  return model_of_name(services, request, model_in_query(request));
}

net::awaitable<Result<ModelLease>> model_of_name(Services& services, const HttpRequest& request,
                                                 std::string name) {
  const std::shared_ptr<RequestRecord> record = request.record;
  auto lease = services.models.lease(name, record_of(request).key);
  const auto named = services.models.find(name, record_of(request).key);
  if (!lease && named) {
    lease = co_await services.loads.lease(**named);
    if (!lease) lease.error().message = without_folders(lease.error().message);
  }
  if (!lease || record == nullptr || !record->cut) co_return lease;
  lease = (*lease)->lease_again(record->cut);
  record->leases = {*lease};
  co_return lease;
}

std::string cache_scope_of(const Services& services, const HttpRequest& request) {
  const std::string& tenant = record_of(request).tenant;
  const bool shared = tenant.empty() || services.config.prefix_cache_across_keys;
  return shared ? std::string() : tenant + "\n";
}

Status read_timeout(const HttpRequest& request, std::optional<std::chrono::milliseconds>& timeout) {
  const std::string text(request.header("x-request-timeout"));
  if (text.empty()) return {};
  char* end = nullptr;
  const double seconds = locale_free_strtod(text.c_str(), &end);
  if (*end != '\0' || !std::isfinite(seconds) || seconds <= 0 || seconds > 1e7) {
    return errorf(ErrorCode::kInvalidArgument,
                  "x-request-timeout: expected seconds greater than 0, got {}", text);
  }
  const std::chrono::milliseconds asked(static_cast<int64_t>(std::ceil(seconds * 1000)));
  timeout = timeout ? std::min(*timeout, asked) : asked;
  return {};
}

Result<double> read_prefill_wait(const HttpRequest& request) {
  const std::string text(request.header("x-prefill-wait"));
  if (text.empty()) return 0.0;
  char* end = nullptr;
  const double seconds = locale_free_strtod(text.c_str(), &end);
  if (*end != '\0' || !(seconds >= 0 && seconds <= kLongestPrefillWait)) {
    return errorf(ErrorCode::kInvalidArgument, "x-prefill-wait: expected 0 to {} seconds, got {}",
                  kLongestPrefillWait, text);
  }
  return seconds;
}

Result<GenerationCall> read_generation(const Services& services, const ApiBody& asked,
                                       const json& body, int default_max_tokens) {
  const ServedModel& model = *asked.model;
  GenerationCall call;
  call.model = asked.model;
  call.adapter = asked.adapter;
  call.params = model.default_sampling_params();
  call.params.max_tokens = default_max_tokens;
  call.params.logprobs.reset();
  RETURN_IF_ERROR(params_from_json(body, call.params));
  ASSIGN_OR_RETURN(call.strings, model.session().string_tokens(call.params));
  if (call.params.logprobs)
    RETURN_IF_ERROR(check_logprobs(services, model, *call.params.logprobs, "logprobs"));
  if (call.params.prompt_logprobs) {
    RETURN_IF_ERROR(
        check_logprobs(services, model, *call.params.prompt_logprobs, "prompt_logprobs"));
  }
  ASSIGN_OR_RETURN(auto structured, read_structured_outputs(body));
  if (structured) {
    add_defaults(services.config.structured, structured->outputs);
    call.params.structured_outputs = std::move(structured->outputs);
    call.structured_field = std::move(structured->field);
  }
  const int64_t priority = get_int(body, "priority", 0);
  if (priority != 0) call.priority = priority < 0 ? Priority::kHigh : Priority::kLow;
  call.cache_salt = get_string(body, "cache_salt");
  if (services.replies->by_meaning()) call.question.emplace();
  if (asked.background)
    call.priority = Priority::kBackground;  // batches have their own time limit
  else if (services.config.request_timeout.count() > 0)
    call.timeout = services.config.request_timeout;
  return call;
}

Status read_thinking_budget(const json& body, bool starts_inside, GenerationCall& call) {
  const auto n_tokens = static_cast<int>(get_int(body, "thinking_token_budget", -1));
  if (n_tokens < 0) return {};
  auto budget = call.model->chat().thinking_budget(n_tokens, starts_inside);
  if (!budget) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "thinking_token_budget: the chat template knows no reasoning (see --reasoning-parser)");
  }
  call.thinking.push_back(std::move(*budget));
  return {};
}

bool truncates(const json& body) { return get_field(body, "truncate_prompt_tokens").is_number(); }

void truncate_prompt(const ServedModel& model, const json& body, std::vector<TokenId>& prompt) {
  if (!truncates(body)) return;
  int64_t keep = get_int(body, "truncate_prompt_tokens", -1);
  if (keep < 0) keep = model.max_model_len() - 1;
  if (static_cast<int64_t>(prompt.size()) <= keep) return;
  if (get_string(body, "truncation_side") == "right") {
    prompt.resize(static_cast<size_t>(keep));
  } else {
    prompt.erase(prompt.begin(), prompt.end() - keep);
  }
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string sse(const json& value) { return "data: " + dump(value) + "\n\n"; }

std::string sse_event(const std::string& name, const json& value) {
  return "event: " + name + "\ndata: " + dump(value) + "\n\n";
}

HttpReply json_reply(const json& body) {
  HttpReply reply;
  reply.body = dump(body);
  return reply;
}

}  // namespace penstock
