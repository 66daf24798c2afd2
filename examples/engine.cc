// The asynchronous engine by itself: token ids in, token events out, several requests at once.
// Usage: engine MODEL
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "penstock/engine.h"

namespace {

// Counts what arrives. The engine calls it on its own thread, so it only takes notes.
class Counter : public penstock::EventSink {
 public:
  void on_tokens(penstock::RequestId, std::span<const penstock::TokenEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const penstock::TokenEvent& event : events) {
      if (event.token != penstock::kNoToken) tokens_.push_back(event.token);
      if (event.finish != penstock::FinishReason::kNone) finish_ = event.finish;
    }
    changed_.notify_all();
  }
  penstock::FinishReason wait(std::vector<penstock::TokenId>& tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return finish_ != penstock::FinishReason::kNone; });
    tokens = tokens_;
    return finish_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<penstock::TokenId> tokens_;
  penstock::FinishReason finish_ = penstock::FinishReason::kNone;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: engine MODEL\n");
    return 2;
  }
  auto opened = penstock::Engine::open({.model = argv[1], .max_model_len = 128, .max_num_seqs = 4});
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return 1;
  }
  penstock::Engine& engine = **opened;
  engine.start();
  std::vector<std::shared_ptr<Counter>> counters;
  for (int i = 0; i < 3; ++i) {
    penstock::Request request;
    request.prompt = {1, 100 + i, 200 + i};
    request.sampling.max_tokens = 10 + i;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    auto counter = std::make_shared<Counter>();
    const auto id = engine.submit(std::move(request), counter);
    if (!id) {
      std::fprintf(stderr, "%s\n", id.error().message.c_str());
      return 1;
    }
    counters.push_back(std::move(counter));
  }
  for (const auto& counter : counters) {
    std::vector<penstock::TokenId> tokens;
    const penstock::FinishReason finish = counter->wait(tokens);
    std::printf("%zu tokens, %s\n", tokens.size(), penstock::finish_reason_name(finish));
  }
  engine.stop();
  const penstock::Metrics metrics = engine.metrics();
  std::printf("%.0f tokens in %.0f steps\n", metrics.generation_tokens.value, metrics.steps.value);
  return 0;
}
