#include "server/replies/reuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/sha256.h"
#include "frontend/params_json.h"
#include "server/api/pooling.h"
#include "server/api/structured.h"
#include "server/services/request_record.h"
#include "server/services/served_models.h"
#include "server/services/services.h"

namespace penstock {
namespace {

// names in Cache-Status
constexpr const char *kExact = "penstock-exact", *kNear = "penstock-meaning";
constexpr int64_t kMostRecord = 8 << 20;  // bytes
constexpr float kGreedy = 1e-5f;          // temperatures below are greedy

// Ignores directives that are meant for other caches.
void read_cache_control(std::string_view text, ReuseWish& wish) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trim_blanks(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    constexpr std::string_view kMaxAge = "max-age=";
    if (item == "no-store") wish.off = true;
    if (item == "no-cache") wish.refresh = true;
    if (!item.starts_with(kMaxAge)) continue;
    int64_t seconds = 0;
    for (const char c : item.substr(kMaxAge.size()))
      seconds =
          c < '0' || c > '9' ? seconds : std::min<int64_t>(seconds * 10 + (c - '0'), INT32_MAX);
    wish.max_age = seconds;
  }
}

// An unambiguous concatenation: each part is preceded by its length.
class HashedText {
 public:
  HashedText& add(std::string_view part) {
    text_ += fmt::format("{}:", part.size());
    text_ += part;
    return *this;
  }
  HashedText& add(const std::vector<TokenId>& ids) {
    return add({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(TokenId)});
  }
  std::string sha256() const {
    const Sha256 digest = penstock::sha256(text_);
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
  }

 private:
  std::string text_;
};

// Returns everything that determines the reply's tokens, except the prompts.
HashedText what_matters(const GenerationCall& call, std::string_view tenant) {
  const auto dumped = [](const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  };
  HashedText text;
  text.add(call.model->identity())
      .add(tenant)
      .add(call.cache_salt)
      .add(dumped(params_to_json(call.params)))
      .add(call.params.processed_logprobs ? "processed" : "");
  text.add(call.adapter == nullptr ? std::string() : call.adapter->name + call.adapter->identity);
  const auto& outputs = call.params.structured_outputs;
  text.add(outputs ? dumped(structured_outputs_to_json(*outputs)) : std::string());
  text.add(call.keep_markers ? "markers" : "");
  text.add(call.ends_by);
  for (const ThinkingBudget& one : call.thinking) {
    text.add(fmt::format("{} {}", one.max_tokens, one.starts_inside)).add(one.open).add(one.close);
  }
  return text;
}

// Of what a call's keys are made of, about.
size_t bytes_of(const GenerationCall& call) {
  const SamplingParams& params = call.params;
  constexpr size_t kPerToken = 8;
  size_t bytes = kPerToken * (params.logit_bias.size() + params.allowed_token_ids.size() +
                              params.banned_token_ids.size());
  for (const auto& prompt : call.prompts) bytes += prompt.size() * sizeof(TokenId);
  if (params.structured_outputs) bytes += text_bytes(*params.structured_outputs);
  return bytes + (call.question ? call.question->context.size() : 0);
}

// Strips the punctuation at the end of a question, to which small embedding models are sensitive.
std::string without_end(std::string text) {
  const size_t end = text.find_last_not_of(" \t\r\n.!?");
  text.resize(end == std::string::npos ? text.size() : end + 1);
  return text;
}

// Returns the scope of a chat: everything that determines the reply, except the last question,
// before rendering.
std::string scope_of(HashedText text, const GenerationCall& call) {
  const ServedModel& model = *call.model;
  text.add("meaning").add(model.chat().chat_template()).add(model.settings().chat.system_prompt);
  return text.add(call.question->context).sha256();
}

}  // namespace

Result<ReuseWish> read_reuse_wish(const HttpRequest& request) {
  ReuseWish wish;
  read_cache_control(request.header("cache-control"), wish);
  const std::string_view own = request.header("x-penstock-cache");
  wish.off |= own == "off";
  wish.exact_only = own == "exact";
  wish.refresh |= own == "refresh";
  wish.asked = own == "on" || own == "exact" || own == "refresh";
  if (!wish.asked && own != "off" && !own.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "x-penstock-cache: expected on, exact, refresh or off, got {}", own);
  }
  return wish;
}

Bypass Reuse::bypass() const {
  const SamplingParams& params = call_.params;
  const ReplyCacheConfig& config = replies_.config();
  if (wish_.off) return Bypass::kRefused;
  if (config.only_on_request && !wish_.asked) return Bypass::kNotAsked;
  if (params.prompt_logprobs) return Bypass::kPromptLogprobs;
  const bool greedy = params.temperature < kGreedy || (params.top_p == 0 && params.mirostat == 0);
  const bool drawn = !greedy && !params.seed && !params.use_beam_search;
  return drawn && !config.sampled && !wish_.asked ? Bypass::kSampled : Bypass::kNone;
}

Bypass Reuse::near_bypass() const {
  if (wish_.exact_only) return Bypass::kExactOnly;
  if (!call_.question || call_.question->text.empty()) return Bypass::kNoQuestion;
  return call_.question->tools ? Bypass::kTools : Bypass::kNone;
}

void Reuse::make_keys() {
  HashedText text =
      what_matters(call_, replies_.config().across_keys ? "" : record_of(exchange_).tenant);
  // Only records with confidence may answer such requests.
  if (record_of(exchange_).confidence) text.add("confidence");
  if (replies_.by_meaning() && call_.question) scope_ = scope_of(text, call_);
  for (const auto& prompt : call_.prompts) text.add(prompt);
  for (const PromptPictures& of_prompt : call_.pictures)
    for (const PlannedPicture& picture : of_prompt.pictures)
      for (const uint64_t part : picture.identity) text.add(std::to_string(part));
  key_ = text.sha256();
}

void Reuse::say(std::string status) { said_ += (said_.empty() ? "" : ", ") + std::move(status); }

void Reuse::give(CachedReplyRef reply, const char* by) {
  exchange_.reply_headers.emplace_back("Age", std::to_string(replies_.cache()->age_of(*reply)));
  call_.kept = std::move(reply);
  call_.kept_by = by;
}

// Whether a reply can be replayed as that of this call.
net::awaitable<bool> Reuse::fits(const CachedReplyRef& reply) {
  if (reply == nullptr) co_return false;
  bool whole = false;
  co_await services_.run_apart(exchange_, reply->record.size(), [&] {
    whole = is_whole_record(reply->record, call_.prompts.size(), call_.params.n);
  });
  co_return whole;
}

net::awaitable<Status> Reuse::look_up() {
  if (replies_.cache() == nullptr) co_return Status();
  auto wish = read_reuse_wish(exchange_.request());
  if (!wish) co_return tl::unexpected(wish.error());
  wish_ = *wish;
  if (const Bypass why = bypass(); why != Bypass::kNone) {
    ++replies_.counters.bypassed[static_cast<size_t>(why)];
    exchange_.reply_headers.emplace_back(
        "Cache-Status", fmt::format("{}; fwd=bypass; detail={}", kExact, name_of(why)));
    co_return Status();
  }
  co_await services_.run_apart(exchange_, bytes_of(call_), [this] { make_keys(); });
  ReplyCache& cache = *replies_.cache();
  CachedReplyRef found = wish_.refresh ? nullptr : cache.find(key_, wish_.max_age);
  if (co_await fits(found)) {
    ++replies_.counters.hits;
    say(fmt::format("{}; hit; ttl={}", kExact, cache.left_of(*found)));
    give(std::move(found), "exact");
  } else {
    ++replies_.counters.misses;
    say(fmt::format("{}; fwd={}", kExact, wish_.refresh ? "request" : "miss"));
    if (replies_.by_meaning()) co_await look_for_meaning();
  }
  exchange_.reply_headers.emplace_back("Cache-Status", said_);
  if (call_.kept != nullptr) co_return Status();
  const int64_t most = std::min(kMostRecord, replies_.config().bytes / 4);
  const bool logprobs =
      call_.params.logprobs.has_value() || record_of(exchange_).confidence.has_value();
  call_.recorder.emplace(logprobs, static_cast<size_t>(most));
  co_return Status();
}

net::awaitable<void> Reuse::look_for_meaning() {
  KeptReplies::Counters& counters = replies_.counters;
  Bypass why = near_bypass();
  if (why == Bypass::kNone) why = co_await embed();
  if (why != Bypass::kNone) {
    scope_.clear();
    ++counters.near_bypassed[static_cast<size_t>(why)];
    say(fmt::format("{}; fwd=bypass; detail={}", kNear, name_of(why)));
    co_return;
  }
  ReplyCache& cache = *replies_.cache();
  ReplyCache::Near near;
  if (!wish_.refresh) {
    // Read beside those of its neighbours.
    constexpr size_t kTexts = 8;
    const std::string& text = call_.question->text;
    co_await services_.run_apart(exchange_, kTexts * text.size(), [&] {
      near = cache.find_near(scope_, meaning_, text, wish_.max_age);
    });
  }
  if (co_await fits(near.reply)) {
    ++counters.near_hits;
    say(fmt::format("{}; hit; ttl={}; detail={:.4f}", kNear, cache.left_of(*near.reply),
                    near.similarity));
    give(std::move(near.reply), "meaning");
    co_return;
  }
  ++counters.near_misses;
  counters.near_refused += near.refused ? 1 : 0;
  say(fmt::format("{}; fwd={}; detail={:.4f}{}", kNear, wish_.refresh ? "request" : "miss",
                  near.similarity, near.refused ? "-other-particulars" : ""));
}

net::awaitable<Bypass> Reuse::embed() {
  const std::string text = without_end(call_.question->text);
  auto vector = co_await embed_for_server(services_, exchange_, replies_.embedder(), text, false);
  if (!vector) {
    const ErrorCode code = vector.error().code;
    co_return code == ErrorCode::kContextOverflow ? Bypass::kTooLong : Bypass::kEmbedder;
  }
  meaning_ = std::move(*vector);
  scope_ = HashedText()
               .add(scope_)
               .add(services_.models.named(replies_.embedder())->identity())
               .sha256();
  co_return Bypass::kNone;
}

void Reuse::keep(const Generation& generation) {
  KeptReplies::Counters& counters = replies_.counters;
  if (call_.kept != nullptr) {
    counters.prompt_tokens_saved += generation.n_prompt_tokens();
    counters.completion_tokens_saved += generation.n_completion_tokens();
  }
  if (!call_.recorder || !call_.recorder->good()) return;
  CachedReply reply;
  reply.key = std::move(key_);
  reply.model = call_.model->name();
  reply.record = call_.recorder->take();
  if (!meaning_.empty()) {
    reply.scope = std::move(scope_);
    reply.question = std::move(call_.question->text);
  }
  replies_.cache()->put(std::move(reply), std::move(meaning_));
}

}  // namespace penstock
