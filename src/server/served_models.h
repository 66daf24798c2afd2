// The models that a server serves, each found by the names that requests give.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/chat/chat_setup.h"
#include "frontend/pooling_queue.h"
#include "frontend/session.h"

namespace penstock {

// What a model is opened for: text, or vectors, classes and scores.
enum class Runner : uint8_t { kAuto, kGenerate, kPooling };

// One model: what it is called from the start, what it can do once it is loaded. load() and stop() are one thread's,
// the rest is anybody's.
class ServedModel {
 public:
  // names: at least one; the first is that of replies and metrics. chat: its template may be a file's name.
  ServedModel(std::vector<std::string> names, EngineConfig engine, ChatConfig chat,
              Runner runner = Runner::kGenerate);
  // Ends what still runs.
  ~ServedModel() { stop(); }

  // Opens the model and starts its engine. Errors: those of opening, of the chat template and the parsers' names.
  Status load();
  bool loaded() const { return loaded_.load(); }
  // Ends every sequence, and its client hears of it.
  void stop();

  const std::vector<std::string>& names() const { return names_; }
  const std::string& name() const { return names_.front(); }
  int64_t created() const { return created_; }  // unix time

  // REQUIRES, here and below: loaded(). Whether it gives vectors instead of text.
  bool pools() const { return pooling_ != nullptr; }
  PoolingQueue& pooling() const { return *pooling_; }  // REQUIRES: pools()
  Metrics metrics() const { return pools() ? pooling_->metrics() : session_->metrics(); }
  const EngineInfo& info() const { return pools() ? pooling_info_ : engine().info(); }
  const EngineConfig& config() const { return pools() ? engine_config_ : engine().config(); }
  int max_model_len() const { return info().max_model_len; }
  // How long it takes until half of what waits in the full queue has been begun, by what requests have taken so far.
  double seconds_of_queue() const;

  // REQUIRES, here and below: not pools().
  Session& session() const { return *session_; }
  Engine& engine() const { return session_->engine(); }
  const Tokenizer& tokenizer() const { return session_->tokenizer(); }
  const ChatSetup& chat() const { return *chat_; }
  // The same as long as the same program serves the same model with the same engine configuration.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Status load_pooling();

  const std::vector<std::string> names_;
  const EngineConfig engine_config_;
  const ChatConfig chat_config_;
  const Runner runner_;
  const int64_t created_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<ChatSetup> chat_;
  std::unique_ptr<PoolingQueue> pooling_;  // or this one instead of both
  EngineInfo pooling_info_;
  std::string fingerprint_;
  std::atomic<bool> loaded_{false};
};

// Filled before anything is served; then read by any thread.
class ServedModels {
 public:
  // any_name: what nobody is called is the default model.
  explicit ServedModels(bool any_name = false) : any_name_(any_name) {}

  // The first model is the default. Errors: kInvalidArgument, no name, an empty one, or one that is taken.
  Status add(std::unique_ptr<ServedModel> model);
  // "": the default. Error: kNotFound, "model: expected A or B, got C".
  Result<ServedModel*> find(std::string_view name) const;
  ServedModel& default_model() const { return *models_.front(); }
  std::span<const std::unique_ptr<ServedModel>> all() const {
    return models_;
  }  // in the order they were added

  // Loads them in their order. Error: the first, with the model's name when there are several.
  Status load();
  bool loaded() const;  // all of them
  void stop();

 private:
  bool any_name_;
  std::vector<std::unique_ptr<ServedModel>> models_;
};

}  // namespace penstock
