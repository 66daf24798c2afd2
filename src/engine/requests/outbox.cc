#include "engine/requests/outbox.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <new>

#include "base/log.h"

namespace penstock {

void Outbox::make_room(RequestState& state, size_t n_requests) {
  state.news.reserve(static_cast<size_t>(state.n_open) + 1);
  // twice, since a sink may fail and then get its last events
  const size_t n_pushes = 2 * n_requests;
  if (with_news_.capacity() < n_pushes) with_news_.reserve(2 * n_pushes);
}

std::span<const TokenLogprob> Outbox::keep(std::span<const TokenLogprob> alternatives) {
  if (alternatives.empty()) return {};
  auto* kept = alternatives_.allocate_array<TokenLogprob>(alternatives.size());
  std::uninitialized_copy(alternatives.begin(), alternatives.end(), kept);
  return {kept, alternatives.size()};
}

void Outbox::push(RequestState& state, const TokenEvent& event) {
  std::vector<TokenEvent>& news = state.news;
  const size_t n_ends = event.finish == FinishReason::kNone ? static_cast<size_t>(state.n_open) : 0;
  if (news.capacity() - news.size() < 1 + n_ends) news.reserve(2 * news.size() + 1 + n_ends);
  if (!state.has_news) with_news_.push_back(&state);
  state.has_news = true;
  news.push_back(event);
}

bool Outbox::send(RequestState& state, const Error& error) {
  state.has_news = false;
  bool sent = true;
  try {
    state.sink->on_tokens(state.id, state.news);
  } catch (const std::bad_alloc&) {
    sent = false;
    for (const TokenEvent& event : state.news) {
      if (event.finish != FinishReason::kNone) send_end(state, event.index, error);
    }
  }
  state.news.clear();
  return sent;
}

void Outbox::send_ends(RequestState& state, int n, const Error& error) {
  for (int index = 0; index < n; ++index) send_end(state, index, error);
}

void Outbox::send_end(RequestState& state, int index, const Error& error) {
  const RequestStats stats;
  const TokenEvent event{
      .index = index, .finish = FinishReason::kError, .stats = &stats, .error = &error};
  try {
    state.sink->on_tokens(state.id, {&event, 1});
  } catch (const std::bad_alloc&) {
    log().error("request {}: its end cannot be delivered: memory ran out",
                static_cast<uint64_t>(state.id));
  }
}

}  // namespace penstock
