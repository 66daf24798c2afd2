// POST /embedding: vectors of texts in llama.cpp's form.
#include <algorithm>
#include <cmath>

#include "server/api/pooling.h"
#include "server/api/schema_parts.h"
#include "server/http/apart_threads.h"
#include "server/routing/endpoint.h"
#include "server/routing/errors.h"
#include "server/services/services.h"

namespace penstock {

EndpointSchema llamacpp_embedding_request, llamacpp_embedding_reply;

namespace {

constexpr int kEuclidean = 2;

struct EmbeddingAsked {
  ModelLease model;
  PoolingCall call;
  int norm = kEuclidean;  // embd_normalize
};

Result<EmbeddingAsked> read_embedding(Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(ApiBody body,
                   read_body(services, request, llamacpp_embedding_request(), ModelUse::kVectors));
  json content = take_field(body.fields, "content");
  const bool has_input = !get_field(body.fields, "input").is_null();
  if (content.is_null() != has_input) {
    return errorf(ErrorCode::kInvalidArgument, "content: expected content or input, got {}",
                  has_input ? "both" : "neither");
  }
  if (!has_input) body.fields["input"] = std::move(content);
  EmbeddingAsked asked{.model = body.model, .call = pooling_call(body)};
  asked.norm = static_cast<int>(get_int(body.fields, "embd_normalize", kEuclidean));
  asked.call.kind.normalize = asked.norm == kEuclidean;
  RETURN_IF_ERROR(read_inputs(body.fields, *body.model, asked.call));
  return asked;
}

// Returns the divisor for llama.cpp's embd_normalize: -1: no scaling; 0: maximum absolute value
// scaled to 16 bits; otherwise the p-norm.
double divisor_of(std::span<const float> vector, int norm) {
  constexpr double kLargest16 = 32760;
  double sum = 0;
  for (const float value : vector) {
    const double x = std::abs(double{value});
    sum = norm == 0 ? std::max(sum, x) : sum + std::pow(x, norm);
  }
  return norm == 0 ? sum / kLargest16 : std::pow(sum, 1.0 / norm);
}

void normalize(std::span<float> vector, int norm) {
  if (norm < 0 || norm == kEuclidean) return;  // the pooling stage has normalized it
  const double divisor = divisor_of(vector, norm);
  if (divisor == 0 || !std::isfinite(divisor)) return;
  for (float& value : vector) value = static_cast<float>(value / divisor);
}

std::string embedding_body(PoolingQueue::Vectors& vectors, int norm) {
  std::string body = "[";
  for (size_t i = 0; i < vectors.size(); ++i) {
    normalize(vectors[i], norm);
    body += fmt::format(R"({}{{"index":{},"embedding":[)", i > 0 ? "," : "", i);
    append_numbers(vectors[i], body);
    body += "]}";
  }
  return body + "]";
}

}  // namespace

const nlohmann::json& llamacpp_embedding_request() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    Json fields = pooling_fields();
    for (const char* name : {"content", "input"}) {
      fields[name] = input_field();
      fields[name]["anyOf"].push_back(plain("null"));
    }
    fields["embd_normalize"] =
        integer(-1, 64,
                "the vectors' norm: -1 none, 0 largest 32760, 1 taxicab, 2 Euclidean "
                "(also when absent), above: the p-norm");
    fields["pooling"] = refused("the checkpoint says how its vectors are made");
    fields["prompt_name"] = text("of the checkpoint's prompts, put before every text");
    return closed(std::move(fields));
  }();
  return value;
}

const nlohmann::json& llamacpp_embedding_reply() {
  using namespace schema;  // NOLINT: a schema
  static const Json value = [] {
    const Json vector = {{"type", "array"}, {"items", {{"type", {"number", "null"}}}}};
    const Json one =
        open({{"index", plain("integer")}, {"embedding", {{"type", "array"}, {"items", vector}}}},
             {"index", "embedding"});
    return Json{{"type", "array"}, {"items", one}};
  }();
  return value;
}

net::awaitable<void> post_llamacpp_embedding(Services& services, Exchange& exchange) {
  Result<EmbeddingAsked> asked;
  co_await services.run_apart(exchange,
                              [&] { asked = read_embedding(services, exchange.request()); });
  if (!asked) co_return co_await exchange.reply(error_reply(asked.error(), "content"));
  BodyBudget budget;
  if (const Status fits = take_reply(services, exchange, *asked->model, asked->call, false, budget);
      !fits)
    co_return co_await exchange.reply(error_reply(fits.error(), "content"));
  auto vectors = co_await compute(services, exchange, *asked->model, std::move(asked->call));
  if (!vectors) co_return co_await exchange.reply(error_reply(vectors.error(), "content"));
  size_t n_numbers = 0;
  for (const auto& vector : *vectors) n_numbers += vector.size();
  HttpReply reply;
  co_await services.run_apart(exchange, n_numbers * kBytesOfNumber,
                              [&] { reply.body = embedding_body(*vectors, asked->norm); });
  co_await exchange.reply(std::move(reply));
}

}  // namespace penstock
