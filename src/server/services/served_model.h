// One model that a server serves: what it is called from the start, what it can do while it is
// loaded.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "frontend/chat/chat_setup.h"
#include "frontend/pooling_queue.h"
#include "frontend/session.h"
#include "server/keys/ledger/usage.h"
#include "server/services/running_texts.h"
#include "server/services/served_adapters.h"

namespace penstock {

// What a model is opened for: text, or vectors, classes and scores.
enum class Runner : uint8_t { kAuto, kGenerate, kPooling };

struct ModelSettings {
  // at least one; the first is that of replies and metrics
  std::vector<std::string> names;
  EngineConfig engine;
  std::vector<AdapterSettings> adapters;  // names beside those above
  ChatConfig chat;                        // chat_template may be a file
  Runner runner = Runner::kAuto;
  // fields of SamplingParams that hold where a request says nothing
  nlohmann::ordered_json sampling = nullptr;
  TokenPrice price;
  // ids of the API keys that may use it; empty: all
  std::vector<std::string> keys;
  // loaded when the server starts, else when it is first asked for
  bool at_start = true;
  bool pinned = false;  // never unloaded to make room for another one
  // unloaded when nobody asked for it so long; 0: stays
  std::chrono::milliseconds idle_timeout{0};
  // bytes that weights and KV cache may take; 0: see ServedModels
  int64_t memory = 0;
};

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading, kFailed };
const char* name_of(ModelState state);  // "unloaded", …

// Any thread, but load() and unload() are one thread's at a time.
class ServedModel {
 public:
  explicit ServedModel(ModelSettings settings);
  // Ends what still runs.
  ~ServedModel();

  // Opens the model and starts its engine, with `config` instead of the settings' engine. Errors:
  // those of opening, of the chat template and the parsers' names; the state is then kFailed.
  Status load(EngineConfig config);
  // Takes no more leases, waits until those given are back, and closes the model.
  void unload();
  // Ok, or why the model that is loaded can compute nothing any more. Never waits.
  Status status();
  // Ends every sequence, and its client hears of it.
  void stop();

  const ModelSettings& settings() const { return settings_; }
  const std::vector<std::string>& names() const { return settings_.names; }
  const std::string& name() const { return settings_.names.front(); }
  int64_t created() const { return created_; }  // unix time
  // whether the API key of that id may use it; "": any may
  bool serves(std::string_view key) const;

  struct Condition {
    ModelState state = ModelState::kUnloaded;
    int n_leases = 0;
    // when the last lease came back, or it was loaded
    std::chrono::steady_clock::time_point last_used;
    std::chrono::steady_clock::time_point changed;  // when the state did
    Error failure;                                  // of kFailed
    // After so long without a use it is unloaded: what a request asked for last, else the
    // settings'; nothing: never.
    std::optional<std::chrono::milliseconds> idle_timeout;
    bool is_idle() const;
  };
  Condition condition() const;
  // Error: kCancelled, it could not be loaded when that was last tried, and why.
  Status load_failure() const;
  // Keeps the model loaded as long as it lives, and must not outlive this. Null unless the state is
  // kLoaded. is_use: it counts for being idle, which it does not for those who only look.
  std::shared_ptr<ServedModel> lease(bool is_use = true);
  void set_idle_timeout(std::optional<std::chrono::milliseconds> timeout);
  // Of the last time that it was loaded; 0 before.
  int max_model_len() const { return max_model_len_.load(); }
  int max_num_seqs() const { return max_num_seqs_.load(); }  // 1 where vectors are computed
  int64_t memory() const { return memory_.load(); }          // bytes of weights and KV cache

  Runner runner() const { return runner_.load(); }  // kAuto: not known yet

  // REQUIRES, here and below: a lease. Whether it gives vectors instead of text.
  bool pools() const { return pooling_ != nullptr; }
  PoolingQueue& pooling() const { return *pooling_; }  // REQUIRES: pools()
  Metrics metrics() const;
  // Of one engine of several; one alone is number 0.
  int n_engines() const { return pools() ? 1 : engine().n_engines(); }
  Metrics metrics_of(int engine) const {
    return pools() ? metrics() : session_->metrics_of(engine);
  }
  const EngineInfo& info_of(int which) const {
    return pools() ? pooling_info_ : engine().engine_at(which).info();
  }
  const EngineInfo& info() const { return pools() ? pooling_info_ : engine().info(); }
  const EngineConfig& config() const { return pools() ? settings_.engine : engine().config(); }
  // The same as long as the model's files are, and what else its tokens or vectors depend on.
  const std::string& identity() const { return identity_; }
  // How long it takes until half of what waits in the full queue has been begun, by what requests
  // have taken so far.
  double seconds_of_queue() const;

  RunningTexts& running() { return running_; }

  // LoRA adapters of this model.
  const ServedAdapters& adapters() const { return adapters_; }
  // As ServedAdapters::add() and remove(). REQUIRES: a lease.
  Status add_adapter(const AdapterSettings& adapter, bool replace) {
    return adapters_.add(adapter_opener(), adapter, replace);
  }
  bool remove_adapter(std::string_view name) { return adapters_.remove(name); }

  // REQUIRES, here and below: not pools().
  Session& session() const { return *session_; }
  Engine& engine() const { return session_->engine(); }
  const Tokenizer& tokenizer() const { return session_->tokenizer(); }
  const ChatSetup& chat() const { return *chat_; }
  // What holds where a request says nothing: the settings' over the checkpoint's.
  const SamplingParams& default_sampling_params() const { return defaults_; }
  // The same as long as the same program serves the same model with the same engine configuration.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Status open(const EngineConfig& config);
  Status open_pooling(const EngineConfig& config);
  ServedAdapters::Opener adapter_opener();
  void close();
  void set_state(ModelState state, Error failure = {});
  void give_back(bool was_use);

  const ModelSettings settings_;
  const int64_t created_;
  // of what follows, against stop(); who has a lease needs none
  std::mutex opening_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<ChatSetup> chat_;
  std::unique_ptr<PoolingQueue> pooling_;  // or this one instead of both
  EngineInfo pooling_info_;
  ServedAdapters adapters_;
  RunningTexts running_;
  SamplingParams defaults_;
  std::string fingerprint_, identity_;
  std::atomic<int> max_model_len_{0}, max_num_seqs_{0};
  std::atomic<int64_t> memory_{0};
  std::atomic<Runner> runner_;

  mutable std::mutex mutex_;
  std::condition_variable given_back_;
  Condition condition_;
};

// What requests hold.
using ModelLease = std::shared_ptr<ServedModel>;

}  // namespace penstock
