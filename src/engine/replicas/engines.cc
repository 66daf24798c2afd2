#include "engine/replicas/engines.h"

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "engine/requests/adapter_pool.h"
#include "engine/requests/prefix_salt.h"

namespace penstock {
namespace {

// Counts a request in its engine's load until the engine releases the sink.
class CountedSink final : public EventSink {
 public:
  CountedSink(std::shared_ptr<EventSink> sink, std::shared_ptr<EngineLoad> load,
              int64_t prompt_tokens, int sequences)
      : sink_(std::move(sink)),
        load_(std::move(load)),
        prompt_tokens_(prompt_tokens),
        sequences_(sequences) {
    load_->prompt_tokens += prompt_tokens_;
    load_->sequences += sequences_;
  }
  ~CountedSink() override {
    load_->prompt_tokens -= prompt_tokens_;
    load_->sequences -= sequences_;
  }
  void on_tokens(RequestId request, std::span<const TokenEvent> events) override {
    load_->prompt_tokens -= std::exchange(prompt_tokens_, 0);
    sink_->on_tokens(request, events);
  }
  void on_prompt_logprobs(RequestId request, int first,
                          std::span<const std::span<const TokenLogprob>> rows) override {
    sink_->on_prompt_logprobs(request, first, rows);
  }

 private:
  const std::shared_ptr<EventSink> sink_;
  const std::shared_ptr<EngineLoad> load_;
  int64_t prompt_tokens_;
  const int sequences_;
};

void add(Counter& sum, const Counter& one) { sum.value += one.value; }
void add(Gauge& sum, const Gauge& one) { sum.value += one.value; }
void add(PositionCounter& sum, const PositionCounter& one) {
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += one.values[i];
  sum.n = std::max(sum.n, one.n);
}
void add(PerRank& sum, const PerRank& one) {
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += one.values[i];
  sum.n = std::max(sum.n, one.n);
}
void add(Histogram& sum, const Histogram& one) {
  for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += one.counts[i];
  sum.sum += one.sum;
  sum.count += one.count;
}

bool is_share(std::string_view name) { return name.ends_with("_perc"); }

}  // namespace

Metrics metrics_together(std::span<const Metrics> engines) {
  Metrics all;
  for (const Metrics& one : engines) {
    std::vector<const void*> values;
    Metrics::visit(one,
                   [&](const char*, const auto& value, const char*) { values.push_back(&value); });
    size_t i = 0;
    Metrics::visit(all, [&](const char*, auto& sum, const char*) {
      add(sum, *static_cast<const std::remove_reference_t<decltype(sum)>*>(values[i++]));
    });
  }
  Metrics::visit(all, [&](const char* name, auto& sum, const char*) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(sum)>, Gauge>) {
      if (is_share(name)) sum.value /= static_cast<double>(std::max<size_t>(engines.size(), 1));
    }
  });
  return all;
}

Engines::Engines(std::vector<std::unique_ptr<Engine>> engines, int n_copies)
    : engines_(std::move(engines)),
      info_(engines_.front()->info()),
      config_(engines_.front()->config()),
      router_(n_engines(), info_.block_size, static_cast<size_t>(info_.n_blocks)) {
  info_.n_blocks = 0, info_.kv_bytes = 0, info_.n_threads = 0;
  for (const auto& engine : engines_) {
    info_.n_blocks += engine->info().n_blocks;
    info_.kv_bytes += engine->info().kv_bytes;
    info_.n_threads += engine->info().n_threads;
    loads_.push_back(std::make_shared<EngineLoad>());
  }
  info_.weight_bytes *= n_copies, info_.offloaded_bytes *= n_copies;
}

Status Engines::status() const {
  for (size_t i = 0; i < engines_.size(); ++i) {
    const Status one = engines_[i]->status();
    if (!one)
      return errorf(one.error().code, "engine {} of {}: {}", i, engines_.size(),
                    one.error().message);
  }
  return {};
}

Result<std::shared_ptr<const Adapter>> Engines::open_adapter(const std::string& path) {
  std::vector<std::shared_ptr<const Adapter>> opened;
  for (const auto& engine : engines_) {
    ASSIGN_OR_RETURN(auto adapter, engine->open_adapter(path));
    opened.push_back(std::move(adapter));
  }
  return Adapter::of_engines(std::move(opened));
}

std::vector<PrefixRouter::Load> Engines::loads() const {
  std::vector<PrefixRouter::Load> loads;
  for (const auto& load : loads_) loads.push_back(load->now());
  return loads;
}

// Tries the engines in order of preference: one whose queue is full passes the request on.
Result<RequestId> Engines::submit(Request request, std::shared_ptr<EventSink> sink) {
  RETURN_IF_ERROR(check(request));
  RETURN_IF_ERROR(status());
  const bool cached = request.read_prefix_cache && !request.sampling.prompt_logprobs;
  const auto n_tokens = static_cast<int64_t>(request.prompt.size());
  const int reach = reach_of(request.prompt.size(), request.sampling.max_tokens, info_);
  const PrefixRouter::Prefix prefix =
      router_.prefix_of(prefix_salt(request, reach, info_), request.prompt);
  const auto places = router_.places(cached ? prefix : PrefixRouter::Prefix(), n_tokens, loads());
  const int n_sequences =
      request.sampling.use_beam_search ? request.sampling.beam_width : request.sampling.n;
  const std::shared_ptr<const Adapter> adapter = request.adapter;
  Result<RequestId> sent;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto engine = static_cast<size_t>(places[i].engine);
    if (adapter != nullptr) request.adapter = adapter->of_engine(engine);
    auto counted =
        std::make_shared<CountedSink>(sink, loads_[engine], places[i].tokens, n_sequences);
    const bool last = i + 1 == places.size();
    sent = engines_[engine]->submit(last ? std::move(request) : request, std::move(counted));
    if (sent) router_.sent(places[i].engine, prefix);
    if (sent || sent.error().code != ErrorCode::kResourceExhausted) break;
  }
  return sent;
}

bool Engines::step() {
  bool more = false;
  for (const auto& engine : engines_) more |= engine->step();
  return more;
}

void Engines::start() {
  for (const auto& engine : engines_) engine->start();
}

void Engines::stop() {
  for (const auto& engine : engines_) engine->stop();
}

Status Engines::set_paused(bool paused) {
  for (const auto& engine : engines_) RETURN_IF_ERROR(engine->set_paused(paused));
  return {};
}

Metrics Engines::metrics() const {
  std::vector<Metrics> each;
  for (const auto& engine : engines_) each.push_back(engine->metrics());
  return metrics_together(each);
}

void Engines::reset_prefix_cache() {
  router_.forget();
  for (const auto& engine : engines_) engine->reset_prefix_cache();
}

Result<int> Engines::save_session(std::span<const TokenId> tokens, const std::string& path,
                                  const std::string& cache_salt) {
  const std::vector<PrefixRouter::Load> none(engines_.size());
  std::vector<PrefixRouter::Place> places;
  for (const std::string& salt : prefix_salts(cache_salt, info_)) {
    const auto prefix = router_.prefix_of(salt, tokens);
    places.push_back(router_.places(prefix, static_cast<int64_t>(tokens.size()), none).front());
  }
  const auto best = std::ranges::min_element(places, {}, &PrefixRouter::Place::tokens);
  return engines_[static_cast<size_t>(best->engine)]->save_session(tokens, path, cache_salt);
}

Result<SessionTokens> Engines::load_session(const std::string& path) {
  Result<SessionTokens> all = engines_.front()->load_session(path);
  for (size_t i = 1; all && i < engines_.size(); ++i) {
    ASSIGN_OR_RETURN(const SessionTokens one, engines_[i]->load_session(path));
    all->n_restored = std::min(all->n_restored, one.n_restored);
  }
  return all;
}

}  // namespace penstock
