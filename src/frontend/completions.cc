#include "frontend/completions.h"

#include <utility>

namespace penstock {

Result<RequestId> Completions::submit(Request request, std::shared_ptr<const SamplingParams> params,
                                      bool keep_markers) {
  const SamplingParams& by = *params;
  Open open{std::move(params),
            OutputBuilder(session_.tokenizer(), by, request.prompt, keep_markers),
            std::vector<size_t>(static_cast<size_t>(by.n))};
  // Held until the id is in open_: poll() may receive events of the request before submit()
  // returns.
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const RequestId id, session_.engine().submit(std::move(request), queue_));
  open_.emplace(static_cast<uint64_t>(id), std::move(open));
  return id;
}

Completions::Open* Completions::find(RequestId request) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(static_cast<uint64_t>(request));
  return found == open_.end() ? nullptr : &found->second;
}

void Completions::poll(std::chrono::milliseconds timeout,
                       const std::function<void(const CompletionUpdate&)>& on_update) {
  events_.clear();
  queue_->pop(events_, timeout);
  for (const OwnedEvent& event : events_) handle(event, on_update);
}

void Completions::handle(const OwnedEvent& event,
                         const std::function<void(const CompletionUpdate&)>& on_update) {
  Open* const open = find(event.request);
  if (open == nullptr) return;
  const OutputBuilder::Step step = open->builder.add(event);
  if (step.stopped_here) cancel(event.request, event.index, FinishReason::kStop);
  if (event.first_position >= 0 || (step.text.empty() && !step.finished)) return;
  const CompletionOutput& output = open->builder.output(event.index);
  size_t& n_told = open->n_told[static_cast<size_t>(event.index)];
  CompletionUpdate update{event.request, &output, step.text,
                          std::exchange(n_told, output.token_ids.size()), step.finished};
  if (!open->builder.finished()) {
    on_update(update);
    return;
  }
  RequestOutput whole = open->builder.take();
  update.output = &whole.outputs[static_cast<size_t>(event.index)];
  update.done = &whole;
  on_update(update);
  const std::lock_guard lock(mutex_);
  open_.erase(static_cast<uint64_t>(event.request));
}

void Completions::cancel_all() {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, open] : open_) ids.push_back(id);
  }
  for (const uint64_t id : ids) cancel(RequestId(id));
}

size_t Completions::n_open() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

}  // namespace penstock
