// What other threads may ask of an engine while it shuts down.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <thread>

#include "engine/engine_fixture.h"

namespace penstock {
namespace {

class Shutdown : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<int> save() { return fake_.engine->save_session(prompt_of(8), path_, ""); }

  const std::string path_ = ::testing::TempDir() + "penstock_shutdown_session";
  FakeEngine fake_{{.n_blocks = {5001}, .max_model_len = 20000}};
};

// Saves from another thread as soon as its request ends.
class SavesAtTheEnd : public EventSink {
 public:
  explicit SavesAtTheEnd(std::function<Result<int>()> save) : save_(std::move(save)) {}
  void on_tokens(RequestId, std::span<const TokenEvent> events) override {
    if (events.back().finish != FinishReason::kNone)
      saved = std::async(std::launch::async, save_).get();
  }
  std::optional<Result<int>> saved;

 private:
  std::function<Result<int>()> save_;
};

// The engine thread is gone, but what it left is still being ended by the thread that stops.
TEST_F(Shutdown, NobodyWorksOnTheCacheBesideIt) {
  const auto sink = std::make_shared<SavesAtTheEnd>([&] { return save(); });
  Request request = request_of(prompt_of(4), 19000);  // more than are made before the stop
  request.sampling.ignore_eos = true;
  fake_.engine->start();
  ASSERT_TRUE(fake_.engine->submit(request, sink));
  fake_.engine->stop();
  ASSERT_TRUE(sink->saved.has_value());
  ASSERT_FALSE(sink->saved->has_value());
  EXPECT_EQ(sink->saved->error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(save()) << "afterwards its caller may again";
}

// For a sanitizer: all that between_steps() looks at is read and written under the lock.
TEST_F(Shutdown, SavingFromAnotherThreadAtAnyMoment) {
  std::atomic<bool> over = false;
  fake_.engine->start();
  std::thread saver([&] {
    while (!over) {
      const auto saved = save();
      EXPECT_TRUE(saved || saved.error().code == ErrorCode::kCancelled);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  over = true;
  fake_.engine->stop();
  saver.join();
}

}  // namespace
}  // namespace penstock
