// One served model: its configuration, and its engine while it is loaded.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
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

// What a model is opened for: text generation, or pooling (vectors, classes, scores).
enum class Runner : uint8_t { kAuto, kGenerate, kPooling };

struct ModelSettings {
  // at least one; the first is used in replies and metrics
  std::vector<std::string> names;
  EngineConfig engine;
  std::vector<AdapterSettings> adapters;  // adapters, which are additional names
  ChatConfig chat;                        // chat_template may be a file
  Runner runner = Runner::kAuto;
  // defaults for fields of SamplingParams that a request does not set
  nlohmann::ordered_json sampling = nullptr;
  TokenPrice price;
  // ids of the API keys that may use it; empty: all
  std::vector<std::string> keys;
  // loaded when the server starts; false: on first use
  bool at_start = true;
  bool pinned = false;  // never unloaded to make room for another model
  // unloaded after this time without use; 0: never
  std::chrono::milliseconds idle_timeout{0};
  // limit in bytes for weights and KV cache; 0: see ServedModels
  int64_t memory = 0;
};

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded, kUnloading, kFailed };
const char* name_of(ModelState state);  // "unloaded", …

// Thread-safe, except that load() and unload() must not run concurrently.
class ServedModel {
 public:
  explicit ServedModel(ModelSettings settings);
  // Cancels running sequences.
  ~ServedModel();

  // Opens the model and starts its engine. config: replaces settings().engine. Errors: those of
  // opening, of the chat template and of unknown parser names; the state is then kFailed.
  Status load(EngineConfig config);
  // Stops giving leases, waits for outstanding ones, and closes the model. Leases that are out after
  // `patience`: their sequences are ended with an error to their clients, and after a few seconds
  // more their holders are cut off.
  void unload(std::chrono::milliseconds patience);
  // Returns why the loaded model has failed permanently, or ok. Does not block.
  Status status();
  // Ends every sequence with an error to its client.
  void stop();
  // As Engine::end_by(), if it is loaded.
  void end_by(Clock::time_point latest);

  const ModelSettings& settings() const { return settings_; }
  const std::vector<std::string>& names() const { return settings_.names; }
  const std::string& name() const { return settings_.names.front(); }
  int64_t created() const { return created_; }  // unix time
  // whether the API key with this id may use it; "": no keys
  bool serves(std::string_view key) const;

  struct Condition {
    ModelState state = ModelState::kUnloaded;
    int n_leases = 0;
    // when the last lease was returned, or the model was loaded
    std::chrono::steady_clock::time_point last_used;
    std::chrono::steady_clock::time_point changed;  // time of the last state change
    Error failure;                                  // for kFailed
    // Idle time after which it is unloaded: the latest value of a request, else of the settings;
    // nullopt: never.
    std::optional<std::chrono::milliseconds> idle_timeout;
    bool is_idle() const;
  };
  Condition condition() const;
  // Errors: kCancelled (the last attempt to load failed; the message says why).
  Status load_failure() const;
  // Returns a lease, which keeps the model loaded; null: the state is not kLoaded. is_use: counts
  // as use for the idle timeout; false for observers. REQUIRES: the lease does not outlive this
  // object.
  std::shared_ptr<ServedModel> lease(bool is_use = true);
  // Returns another lease beside one that the caller holds, whatever the state. cut: called on any
  // thread if the model has to go and the lease is still out; it must not block.
  std::shared_ptr<ServedModel> lease_again(std::function<void()> cut);
  void set_idle_timeout(std::optional<std::chrono::milliseconds> timeout);
  // From the last load; 0 before the first.
  int max_model_len() const { return max_model_len_.load(); }
  int max_num_seqs() const { return max_num_seqs_.load(); }  // 1 for pooling models
  // Bytes of weights, of the tower too, and of the KV cache.
  int64_t memory() const { return memory_.load(); }

  Runner runner() const { return runner_.load(); }  // kAuto: not known yet
  // Whether it takes pictures, videos, or sounds; false before the first load.
  bool sees() const { return sees_.load(); }
  bool watches() const { return watches_.load(); }
  bool hears() const { return hears_.load(); }
  // sees() before the first load too, by the model's files: reads them once and blocks. Nothing: they
  // cannot be read, or the last attempt to load failed.
  std::optional<bool> will_see();
  bool sight_is_known() const { return sight_known_.load(); }  // will_see() does not block

  // REQUIRES, here and below: a lease. pools(): whether it computes vectors instead of text.
  bool pools() const { return pooling_ != nullptr; }
  PoolingQueue& pooling() const { return *pooling_; }  // REQUIRES: pools()
  Metrics metrics() const;
  // Metrics by engine: with data parallelism there are several; a single engine has index 0.
  int n_engines() const { return pools() ? 1 : engine().n_engines(); }
  Metrics metrics_of(int engine) const {
    return pools() ? metrics() : session_->metrics_of(engine);
  }
  const EngineInfo& info_of(int which) const {
    return pools() ? pooling_info_ : engine().engine_at(which).info();
  }
  const EngineInfo& info() const { return pools() ? pooling_info_ : engine().info(); }
  const EngineConfig& config() const { return pools() ? settings_.engine : engine().config(); }
  // Identifies the model's files and settings on which tokens or vectors depend; constant while
  // these do not change.
  const std::string& identity() const { return identity_; }
  // Estimates the seconds until half of a full queue has started, from the durations of past
  // requests.
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
  // The defaults for requests: the settings' over the checkpoint's.
  const SamplingParams& default_sampling_params() const { return defaults_; }
  // Constant for the same program, model and engine configuration.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  Status open(const EngineConfig& config);
  Status open_pooling(const EngineConfig& config);
  ServedAdapters::Opener adapter_opener();
  void close();
  void set_state(ModelState state, Error failure = {});
  void give_back(bool was_use);
  bool all_back_within(std::chrono::milliseconds time);

  const ModelSettings settings_;
  const int64_t created_;
  // guards the members below against stop(); holders of a lease need no lock
  std::mutex opening_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<ChatSetup> chat_;
  std::unique_ptr<PoolingQueue> pooling_;  // alternative to session_ and chat_
  EngineInfo pooling_info_;
  ServedAdapters adapters_;
  RunningTexts running_;
  SamplingParams defaults_;
  std::string fingerprint_, identity_;
  std::atomic<int> max_model_len_{0}, max_num_seqs_{0};
  std::atomic<int64_t> memory_{0};
  std::atomic<Runner> runner_;
  std::atomic<bool> sees_{false}, watches_{false}, hears_{false};
  std::atomic<bool> sight_known_{false};  // sees_ is of the model's files, or of the last load

  mutable std::mutex mutex_;
  std::condition_variable given_back_;
  std::list<std::function<void()>> cuts_;  // of leases
  Condition condition_;
};

// Held by requests to keep a model loaded.
using ModelLease = std::shared_ptr<ServedModel>;

}  // namespace penstock
