#include "server/api/pooling.h"

#include <openssl/evp.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <ctime>

#include "base/work.h"
#include "server/api/api_request.h"
#include "server/api/schema_parts.h"
#include "server/http/awaited.h"
#include "server/keys/ledger/spending.h"
#include "server/services/config.h"
#include "server/services/model_loads.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr int kMostInputs = 2048;  // inputs of one call; OpenAI's limit

std::vector<TokenId> ids_in(const json& list) {
  std::vector<TokenId> ids;
  for (const json& item : list) ids.push_back(static_cast<TokenId>(item.get<int64_t>()));
  return ids;
}

// -1: the model's limit; absent: no truncation.
void read_truncation(const json& body, bool& truncate, int& truncate_to) {
  if (!truncates(body)) return;
  const int64_t most = get_int(body, "truncate_prompt_tokens", -1);
  truncate = most < 0;
  truncate_to = most < 0 ? 0 : static_cast<int>(most);
}

Status add_prompts(std::span<const Prompt> prompts, const json& body, const ServedModel& model,
                   PoolingCall& call) {
  EmbedOptions options;
  read_truncation(body, options.truncate, options.truncate_to);
  options.dimensions = call.kind.dimensions;
  const bool classifies = call.kind.task == PoolingKind::Task::kClassify;
  if (classifies) {
    options.prompt_name = std::string();
  } else if (get_field(body, "prompt_name").is_string()) {
    options.prompt_name = get_string(body, "prompt_name");
  }
  ASSIGN_OR_RETURN(call.inputs, model.pooling().model().encode(prompts, options));
  for (const auto& input : call.inputs) call.lengths.push_back(input.size());
  return {};
}

}  // namespace

PoolingCall pooling_call(const ApiBody& body) {
  PoolingCall call;
  if (body.adapter != nullptr) call.kind.adapter = body.adapter->opened;
  return call;
}

Status read_inputs(const json& body, const ServedModel& model, PoolingCall& call) {
  const json& input = get_field(body, "input");
  std::vector<Prompt> prompts;
  if (input.is_string()) {
    prompts.emplace_back(input.get<std::string>());
  } else if (input.front().is_number()) {
    prompts.emplace_back(ids_in(input));
  } else {
    for (const json& item : input)
      item.is_string() ? prompts.emplace_back(item.get<std::string>())
                       : prompts.emplace_back(ids_in(item));
  }
  return add_prompts(prompts, body, model, call);
}

Status add_texts(std::span<const std::string> texts, const json& body, const ServedModel& model,
                 PoolingCall& call) {
  const std::vector<Prompt> prompts(texts.begin(), texts.end());
  return add_prompts(prompts, body, model, call);
}

Status add_pairs(std::span<const std::string> first, std::span<const std::string> second,
                 const json& body, const ServedModel& model, PoolingCall& call) {
  ClassifyOptions options;
  read_truncation(body, options.truncate, options.truncate_to);
  ASSIGN_OR_RETURN(call.pairs, model.pooling().model().pair_tokens(first, second, options));
  for (const PairTokens& one : call.pairs) call.lengths.push_back(one.tokens.size());
  call.kind.task = PoolingKind::Task::kScore;
  return {};
}

namespace {

net::awaitable<Result<PoolingQueue::Vectors>> compute_uncharged(Services& services,
                                                                Exchange& exchange,
                                                                const ServedModel& model,
                                                                PoolingCall call) {
  PoolingQueue& queue = model.pooling();
  call.tenant = record_of(exchange).tenant;
  std::optional<std::chrono::milliseconds> timeout;
  if (services.config.request_timeout.count() > 0) timeout = services.config.request_timeout;
  if (const Status read = read_timeout(exchange.request(), timeout); !read)
    co_return tl::unexpected(read.error());
  if (timeout) call.deadline = std::chrono::steady_clock::now() + *timeout;
  co_return co_await await_result<PoolingQueue::Vectors>(
      exchange,
      [&](PoolingQueue::Done done) { return queue.submit(std::move(call), std::move(done)); },
      [&queue](uint64_t id) { queue.cancel(id); });
}

}  // namespace

net::awaitable<Result<PoolingQueue::Vectors>> compute(Services& services, Exchange& exchange,
                                                      const ServedModel& model, PoolingCall call) {
  RequestRecord& record = record_of(exchange);
  if (record.spending != nullptr) {
    SpendingClaim claim{.price = model.settings().price,
                        .prompt_tokens = static_cast<int64_t>(n_tokens(call))};
    if (const auto refused = record.spending->claim(claim)) {
      record.over_budget = refused->for_good;
      co_return errorf(ErrorCode::kResourceExhausted, "{}", refused->reply.message);
    }
  }
  record.use.model = model.name();
  record.count_tokens(static_cast<int>(n_tokens(call)), 0);
  co_return co_await compute_uncharged(services, exchange, model, std::move(call));
}

net::awaitable<Result<std::vector<float>>> embed_for_server(Services& services, Exchange& exchange,
                                                            const std::string& name,
                                                            const std::string& text,
                                                            bool truncate) {
  ServedModel* const model = services.models.named(name);
  if (model == nullptr) co_return errorf(ErrorCode::kNotFound, "there is no model {}", name);
  ModelLease lease = model->lease();
  if (lease == nullptr && !record_of(exchange).leases.empty()) {
    // Loading may wait for the models that this request keeps loaded.
    services.loads.load_later(*model);
    co_return errorf(ErrorCode::kCancelled, "{} is not loaded", name);
  }
  if (lease == nullptr) {
    auto loaded = co_await services.loads.lease(*model);
    if (!loaded) co_return tl::unexpected(std::move(loaded.error()));
    lease = *std::move(loaded);
  }
  if (!lease->pools()) co_return errorf(ErrorCode::kUnsupported, "{} gives no vectors", name);
  PoolingCall call;
  call.kind.normalize = true;
  EmbedOptions options;
  options.prompt_name = std::string();
  options.truncate = truncate;
  // truncation happens long before this limit
  const Prompt prompt = truncate ? text.substr(0, most_text(services)) : text;
  Result<std::vector<std::vector<TokenId>>> inputs;
  co_await services.run_apart(exchange, text.size(), [&] {
    inputs = lease->pooling().model().encode({&prompt, 1}, options);
  });
  if (!inputs) co_return tl::unexpected(std::move(inputs.error()));
  call.inputs = std::move(*inputs);
  for (const auto& input : call.inputs) call.lengths.push_back(input.size());
  auto vectors = co_await compute_uncharged(services, exchange, *lease, std::move(call));
  if (!vectors) co_return tl::unexpected(std::move(vectors.error()));
  co_return std::move(vectors->front());
}

int64_t n_tokens(const PoolingCall& call) {
  int64_t n = 0;
  for (const size_t length : call.lengths) n += static_cast<int64_t>(length);
  return n;
}

Status take_reply(Services& services, const Exchange& exchange, const ServedModel& model,
                  const PoolingCall& call, bool as_base64, BodyBudget& budget) {
  const EmbeddingInfo info = model.pooling().model().info();
  const bool vectors = call.kind.task == PoolingKind::Task::kEmbed ||
                       call.kind.task == PoolingKind::Task::kEmbedTokens;
  const int64_t n_rows = call.kind.task == PoolingKind::Task::kEmbedTokens
                             ? n_tokens(call)
                             : static_cast<int64_t>(call.lengths.size());
  const int64_t width = !vectors                   ? static_cast<int64_t>(info.labels.size())
                        : call.kind.dimensions > 0 ? call.kind.dimensions
                                                   : info.dimensions;
  constexpr int64_t kBase64 = 6;  // approximate bytes of a number in base64
  const int64_t bytes =
      n_rows * width * (as_base64 ? kBase64 : static_cast<int64_t>(kBytesOfNumber));
  const int64_t most = services.config.max_reply_bytes;
  if (bytes > most) {
    return errorf(ErrorCode::kInvalidArgument,
                  "input: the reply would have {} numbers, some {} bytes, expected at most {} (see "
                  "--max-reply-bytes)",
                  n_rows * width, bytes, most);
  }
  constexpr int64_t kAtOnce = 4;  // concurrent replies of maximum size
  budget.attach(services.under_way.vector_bytes, kAtOnce * most);
  budget.share(services.under_way.vector_shares, exchange.request().asker());
  if (budget.take(bytes)) return {};
  return errorf(ErrorCode::kResourceExhausted,
                "the replies under way hold {} bytes, all that this server allows, or this client "
                "three quarters of them",
                kAtOnce * most);
}

json pooling_reply(const std::string& prefix, const std::string& name, int64_t n_tokens) {
  return {{"id", random_id(prefix)},
          {"object", "list"},
          {"created", std::time(nullptr)},
          {"model", name},
          {"usage",
           {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}, {"completion_tokens", 0}}}};
}

void append_numbers(std::span<const float> numbers, std::string& out) {
  give_way();
  out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    if (std::isfinite(numbers[i])) {
      fmt::format_to(std::back_inserter(out), "{}", numbers[i]);
    } else {
      out += "null";
    }
  }
  out += ']';
}

std::string base64(std::span<const float> numbers) {
  static_assert(std::endian::native == std::endian::little);
  const size_t bytes = numbers.size_bytes();
  std::string out((bytes + 2) / 3 * 4 + 1, '\0');  // includes the terminating zero
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                  reinterpret_cast<const unsigned char*>(numbers.data()), static_cast<int>(bytes));
  out.pop_back();
  return out;
}

nlohmann::json pooling_fields() {
  using namespace schema;  // NOLINT: a schema
  return {
      {"model", text("the served model's name")},
      {"user", text("no effect")},
      {"priority", only(0, "calls take turns")},
      {"request_id", short_text(256, "used in the id of the reply")},
      {"add_special_tokens", only(true, "texts are read as the checkpoint says")},
      {"truncate_prompt_tokens",
       integer(-1, INT32_MAX,
               "inputs that are longer are cut to so many tokens; -1: to what the model takes")},
      {"truncation_side", only("right", "the end is cut")}};
}

nlohmann::json input_field() {
  using namespace schema;  // NOLINT: a schema
  const auto bounded = [](Json items, const char* title) {
    Json list = {{"type", "array"}, {"items", std::move(items)}, {"minItems", 1}, {"title", title}};
    return list;
  };
  Json text = plain("string"), ids = bounded(token_id(), "a list of token ids");
  Json texts = bounded(plain("string"), "a list of at most 2048 texts"),
       lists = bounded(ids, "a list of at most 2048 such lists");
  texts["maxItems"] = kMostInputs;
  lists["maxItems"] = kMostInputs;
  return {{"anyOf", {text, texts, ids, lists}},
          {"description", "one text or several, or their token ids"}};
}

}  // namespace penstock
