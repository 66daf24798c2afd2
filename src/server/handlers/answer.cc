#include "server/handlers/answer.h"

#include "server/api/api_request.h"
#include "server/handlers/constrain.h"
#include "server/keys/ledger/spending.h"
#include "server/replies/reuse.h"
#include "server/routing/errors.h"
#include "server/services/config.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr size_t kPerToken = 4, kPerLogprob = 60;  // approximate bytes in a reply
// Most bytes that a stream repeats of its prompts (texts, ids, log-probabilities): its events are
// written on the connections' thread.
constexpr double kMostStreamedRepeats = 4 << 20;

// Refuses calls whose replies could exceed the server's limit.
Status check_reply(const Services& services, const GenerationCall& call, bool stream) {
  const SamplingParams& params = call.params;
  const auto entries = [](const std::optional<int>& wanted, const ServedModel& model) {
    return !wanted ? 0.0 : *wanted < 0 ? 1.0 + model.engine().info().vocab_size : 1.0 + *wanted;
  };
  const int context = call.model->max_model_len();
  double bytes = 0, repeats = 0;
  for (const auto& prompt : call.prompts) {
    const int room = std::max(context - static_cast<int>(prompt.size()), 0);
    const int n_tokens = params.max_tokens < 0 ? room : std::min(params.max_tokens, room);
    repeats += static_cast<double>(prompt.size()) *
               (kPerLogprob * entries(params.prompt_logprobs, *call.model) * call.n_row_repeats +
                1.0 * kPerToken * params.n * call.n_repeats);
    if (!stream || call.repeats_reply)
      bytes += 1.0 * params.n * n_tokens *
               (kPerToken + kPerLogprob * entries(params.logprobs, *call.model));
  }
  repeats += 1.0 * params.n * static_cast<double>(call.repeated_bytes);
  bytes += repeats;
  const auto most = static_cast<double>(services.config.max_reply_bytes);
  if (bytes <= most) {
    if (!stream || repeats <= kMostStreamedRepeats) return {};
    return errorf(
        ErrorCode::kInvalidArgument,
        "stream: prompts, their ids and log-probabilities and settings may be repeated in {:.0f} "
        "bytes, expected at most {:.0f}: ask for fewer choices or alternatives, or without stream",
        repeats, kMostStreamedRepeats);
  }
  return errorf(ErrorCode::kInvalidArgument,
                "{}: the reply may become {:.0f} bytes, expected at most {:.0f} (see "
                "--max-reply-bytes): ask for fewer tokens, choices or alternatives",
                params.prompt_logprobs ? "prompt_logprobs"
                : params.logprobs      ? "logprobs"
                                       : "n",
                bytes, most);
}

// Estimates the bytes of a whole reply.
size_t reply_bytes(const Generation& generation) {
  constexpr size_t kPerChoice = 512;
  const GenerationCall& call = generation.call();
  size_t bytes = call.repeated_bytes * static_cast<size_t>(std::max(call.params.n, 1));
  for (const RequestOutput& output : generation.outputs()) {
    bytes += output.prompt_token_ids.size() * kPerToken;
    bytes += output.outputs.size() * (kPerChoice + output.prompt_token_ids.size() * kPerToken *
                                                       static_cast<size_t>(call.n_repeats));
    size_t n_entries = 0;
    for (const auto& row : output.prompt_logprobs) n_entries += row.size();
    bytes += n_entries * kPerLogprob * static_cast<size_t>(call.n_row_repeats);
    for (const CompletionOutput& one : output.outputs) {
      bytes += one.token_ids.size() * kPerToken;
      for (const auto& row : one.logprobs) bytes += row.size() * kPerLogprob;
    }
  }
  return bytes;
}

// Reserves the call's maximum use in the payer's budgets and quota, shortening a reply of default
// length if necessary. nullopt: reserved.
std::optional<HttpReply> reserve(Exchange& exchange, GenerationCall& call, ReplyShape& shape) {
  RequestRecord& record = record_of(exchange);
  if (record.spending == nullptr || call.kept != nullptr) return std::nullopt;
  SpendingClaim claim{
      .price = call.model->settings().price,
      .n_replies = static_cast<int64_t>(call.prompts.size()) * std::max(call.params.n, 1),
      .max_tokens = call.params.max_tokens,
      .may_be_shorter = call.fills_context};
  int64_t room = 0;  // room in the context after a prompt
  for (const auto& prompt : call.prompts) {
    claim.prompt_tokens += static_cast<int64_t>(prompt.size());
    room = std::max(room, call.model->max_model_len() - static_cast<int64_t>(prompt.size()));
  }
  claim.max_tokens = std::clamp<int64_t>(claim.max_tokens, 0, room);
  const int64_t asked = claim.max_tokens;
  if (const auto refused = record.spending->claim(claim)) {
    record.over_budget = refused->for_good;
    HttpReply reply = shape.error({ErrorCode::kResourceExhausted, refused->reply.message});
    set_headers(reply, refused->reply.headers);
    return reply;
  }
  if (claim.max_tokens == asked) return std::nullopt;
  call.params.max_tokens = static_cast<int>(claim.max_tokens);
  // the budget changes the reply, so that it must not be cached
  call.recorder.reset();
  return std::nullopt;
}

net::awaitable<void> answer_stream(Services& services, Exchange& exchange, Generation& generation,
                                   ReplyShape& shape) {
  bool open = co_await exchange.begin_stream(stream_head(shape.content_type()));
  std::string chunk = shape.begin(generation);
  if (open && !chunk.empty()) open = co_await exchange.write(chunk);
  const auto interval = services.config.keep_alive_interval;
  auto told = std::chrono::steady_clock::now();  // time of the last bytes to the client
  const auto tell = [&](std::string_view events) {
    if (events.empty()) return;
    exchange.put(events);
    told = std::chrono::steady_clock::now();
  };
  // Tokens may arrive for long without an event, for example those of a call that is sent as a
  // whole.
  const Generation::Take send = [&](const std::vector<ChoiceDelta>& deltas) {
    chunk.clear();
    for (const ChoiceDelta& delta : deltas) chunk += shape.add(delta, generation);
    const bool silent = chunk.empty() && std::chrono::steady_clock::now() - told >= interval;
    tell(silent ? shape.keep_alive() : chunk);
    return exchange.all_sent();
  };
  const auto often = shape.look_every();
  const auto timeout = often.count() > 0 ? std::min(interval, often) : interval;
  while (open && co_await generation.pass(send, timeout)) {
    if (exchange.all_sent()) {
      const std::string news = shape.look(generation);
      const bool silent = often.count() == 0 || std::chrono::steady_clock::now() - told >= interval;
      tell(news.empty() && silent ? shape.keep_alive() : news);
    }
    if (!exchange.all_sent()) co_await exchange.flush();
    open = !exchange.gone();
  }
  if (const auto& spending = record_of(exchange).spending) spending->settle();
  if (!open || generation.client_gone()) co_return;
  const Error* failure = generation.error();
  const Error* error =
      failure != nullptr && failure->code != ErrorCode::kCancelled ? failure : nullptr;
  co_await shape.keep(generation, error);
  std::string tail = error != nullptr ? shape.error_event(*error) : shape.end(generation);
  if (co_await exchange.write(tail)) co_await exchange.end_stream();
}

// Leaves of a call what the cached blocks of its prompts depend on, and what the engine refuses.
void keep_prompts(GenerationCall& call) {
  const SamplingParams asked = std::exchange(call.params, SamplingParams());
  call.params.max_tokens = asked.max_tokens;
  call.params.prompt_logprobs = asked.prompt_logprobs;
  call.params.use_beam_search = asked.use_beam_search;
  call.strings = {};
  call.logits_processor = nullptr;
  call.thinking.clear();
  call.question.reset();
}

// Returns how much of the prompts others find in the store.
nlohmann::ordered_json prefilled(const Generation& generation) {
  int stored = 0;
  for (const RequestOutput& output : generation.outputs())
    stored += std::max(0, output.outputs.at(0).stats.prefix.stored_tokens);
  const int n_prompt = generation.n_prompt_tokens();
  return {{"object", "prefill"},
          {"model", generation.call().name()},
          {"stored_tokens", stored},
          {"usage",
           {{"prompt_tokens", n_prompt},
            {"completion_tokens", 0},
            {"total_tokens", n_prompt},
            {"prompt_tokens_details", {{"cached_tokens", generation.n_cached_tokens()}}}}}};
}

// Returns null when the call is refused, which the client was told.
net::awaitable<std::unique_ptr<Generation>> begin(Services& services, Exchange& exchange,
                                                  GenerationCall& call, ReplyShape& shape) {
  if (auto refused = reserve(exchange, call, shape)) {
    co_await exchange.reply(*std::move(refused));
    co_return nullptr;
  }
  call.cache_scope = cache_scope_of(services, exchange.request());
  auto started = co_await Generation::start(services, exchange, call);
  if (started) co_return *std::move(started);
  HttpReply refused = shape.error(started.error());
  if (refused.status == 429) set_retry_after(refused, call.model->seconds_of_queue());
  co_await exchange.reply(std::move(refused));
  co_return nullptr;
}

// Passes all deltas to `take`. Returns whether a whole reply is wanted: the client is there, and was
// told of no error.
net::awaitable<bool> pass_all(Exchange& exchange, Generation& generation, ReplyShape& shape,
                              const Generation::Take& take) {
  while (co_await generation.pass(take, std::chrono::hours(1))) {
  }
  if (const auto& spending = record_of(exchange).spending) spending->settle();
  if (generation.client_gone()) co_return false;
  if (generation.error() == nullptr) co_return true;
  co_await exchange.reply(shape.error(*generation.error()));
  co_return false;
}

// Computes the prompts of a call and has them in the store, whatever else it asks for.
net::awaitable<void> answer_prompts(Services& services, Exchange& exchange, GenerationCall& call,
                                    ReplyShape& shape) {
  keep_prompts(call);
  const auto generation = co_await begin(services, exchange, call, shape);
  if (generation == nullptr) co_return;
  const Generation::Take ignore = [](const std::vector<ChoiceDelta>&) { return true; };
  if (co_await pass_all(exchange, *generation, shape, ignore))
    co_await exchange.reply(json_reply(prefilled(*generation)));
}

}  // namespace

HttpReply stream_head(const char* content_type) {
  HttpReply head;
  head.content_type = content_type;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");  // prevents buffering of events in proxies
  return head;
}

std::string ReplyShape::begin(const Generation&) { return {}; }

net::awaitable<void> ReplyShape::keep(const Generation&, const Error*) { co_return; }

std::string ReplyShape::whole_text(const Generation& generation) { return dump(whole(generation)); }

HttpReply ReplyShape::error(const Error& error) { return error_reply(error); }

std::string ReplyShape::error_event(const Error& error) {
  return "data: " + error_reply(error).body + "\n\ndata: [DONE]\n\n";
}

std::vector<ReplySegment> read_delta(ChatReader& reader, const ChoiceDelta& delta,
                                     Generation& generation) {
  const bool was_complete = reader.complete();
  // The engine may have gone on for some tokens, and ended for another reason.
  const FinishReason finish =
      was_complete && delta.finish != FinishReason::kNone ? FinishReason::kStop : delta.finish;
  auto news = reader.add(delta.text, delta.token == kNoToken ? 0 : 1, finish);
  if (reader.complete() && !was_complete && delta.finish == FinishReason::kNone)
    generation.stop(delta.choice);
  return news;
}

net::awaitable<void> answer(Services& services, Exchange& exchange, GenerationCall& call,
                            bool stream, ReplyShape& shape) {
  if (const Status read = read_timeout(exchange.request(), call.timeout); !read) {
    co_return co_await exchange.reply(shape.error(read.error()));
  }
  const Result<double> wait = read_prefill_wait(exchange.request());
  if (!wait) co_return co_await exchange.reply(shape.error(wait.error()));
  if (call.model->config().role == "prefill")
    co_return co_await answer_prompts(services, exchange, call, shape);
  call.prefill_wait_seconds = *wait;
  call.keeps_logprobs = !stream;
  if (const Status fits = check_reply(services, call, stream); !fits)
    co_return co_await exchange.reply(shape.error(fits.error()));
  Reuse reuse(services, exchange, call);
  if (const Status looked_up = co_await reuse.look_up(); !looked_up) {
    co_return co_await exchange.reply(shape.error(looked_up.error()));
  }
  if (const Status constrained = co_await constrain(services, exchange, call); !constrained) {
    co_return co_await exchange.reply(shape.error(constrained.error()));
  }
  if (exchange.gone()) co_return;
  const auto begun = co_await begin(services, exchange, call, shape);
  if (begun == nullptr) co_return;
  Generation& generation = *begun;
  if (stream) {
    co_await answer_stream(services, exchange, generation, shape);
    if (!generation.client_gone() && !generation.error()) reuse.keep(generation);
    co_return;
  }
  const Generation::Take gather = [&](const std::vector<ChoiceDelta>& deltas) {
    for (const ChoiceDelta& delta : deltas) shape.add(delta, generation);
    return true;
  };
  if (!co_await pass_all(exchange, generation, shape, gather)) co_return;
  co_await shape.keep(generation, nullptr);
  reuse.keep(generation);
  HttpReply whole;
  co_await services.run_apart(exchange, reply_bytes(generation) + shape.bytes_beside(),
                              [&] { whole.body = shape.whole_text(generation); });
  co_await exchange.reply(std::move(whole));
}

}  // namespace penstock
