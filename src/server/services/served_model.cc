#include "server/services/served_model.h"

#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "engine/open/tower_file.h"
#include "frontend/embedding_model.h"
#include "frontend/params_json.h"
#include "penstock/version.h"
#include "server/routing/client_reason.h"
#include "server/services/file_identity.h"

namespace penstock {
namespace {

std::string fingerprint_of(const std::string& name, const Engine& engine) {
  std::string all =
      fmt::format("{} {} {} {}", kVersion, name, engine.info().architecture, engine.info().backend);
  EngineConfig::visit(engine.config(), [&](const char* field, const auto& value, const char*) {
    if (field == std::string_view("kv_store")) return;  // it has a password and changes no reply
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) all += fmt::format(" {}={}", field, *value);
    } else {
      all += fmt::format(" {}={}", field, value);
    }
  });
  return fmt::format("penstock-{}-{:08x}", kVersion,
                     static_cast<uint32_t>(checksum64(std::as_bytes(std::span(all)))));
}

// Identifies everything that determines a reply's tokens besides the request.
std::string identity_of_model(const std::string& name, const Engine& engine) {
  const EngineConfig& config = engine.config();
  return fmt::format("{} {} {} {} {} {} {} {}", kVersion, name, engine.info().architecture,
                     identity_of_files(config.model), config.quantize, config.kv_cache_dtype,
                     config.mamba_ssm_cache_dtype, engine.info().max_model_len);
}

}  // namespace

const char* name_of(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded: return "unloaded";
    case ModelState::kLoading: return "loading";
    case ModelState::kLoaded: return "loaded";
    case ModelState::kUnloading: return "unloading";
    case ModelState::kFailed: return "failed";
  }
  return "";
}

ServedModel::ServedModel(ModelSettings settings)
    : settings_(std::move(settings)),
      created_(std::time(nullptr)),
      adapters_(settings_.adapters),
      runner_(settings_.runner) {
  if (settings_.idle_timeout.count() > 0) condition_.idle_timeout = settings_.idle_timeout;
}

ServedModel::~ServedModel() {
  stop();
  close();
}

bool ServedModel::serves(std::string_view key) const {
  return settings_.keys.empty() || key.empty() ||
         std::ranges::find(settings_.keys, key) != settings_.keys.end();
}

ServedModel::Condition ServedModel::condition() const {
  const std::lock_guard lock(mutex_);
  return condition_;
}

Status ServedModel::load_failure() const {
  const Condition now = condition();
  if (now.state != ModelState::kFailed) return {};
  return errorf(ErrorCode::kCancelled, "model: {} could not be loaded: {}", name(),
                without_folders(now.failure.message));
}

void ServedModel::set_state(ModelState state, Error failure) {
  const std::lock_guard lock(mutex_);
  condition_.state = state;
  condition_.failure = std::move(failure);
  condition_.changed = condition_.last_used = std::chrono::steady_clock::now();
}

bool ServedModel::Condition::is_idle() const {
  return idle_timeout && state == ModelState::kLoaded && n_leases == 0 &&
         std::chrono::steady_clock::now() - last_used >= *idle_timeout;
}

void ServedModel::set_idle_timeout(std::optional<std::chrono::milliseconds> timeout) {
  const std::lock_guard lock(mutex_);
  condition_.idle_timeout = timeout;
}

std::shared_ptr<ServedModel> ServedModel::lease(bool is_use) {
  {
    const std::lock_guard lock(mutex_);
    if (condition_.state != ModelState::kLoaded) return nullptr;
    ++condition_.n_leases;
  }
  return {this, [is_use](ServedModel* model) { model->give_back(is_use); }};
}

std::shared_ptr<ServedModel> ServedModel::lease_again(std::function<void()> cut) {
  std::list<std::function<void()>>::iterator own;
  {
    const std::lock_guard lock(mutex_);
    own = cuts_.insert(cuts_.end(), std::move(cut));
    ++condition_.n_leases;
  }
  return {this, [own](ServedModel* model) {
            {
              const std::lock_guard again(model->mutex_);
              model->cuts_.erase(own);
            }
            model->give_back(true);
          }};
}

void ServedModel::give_back(bool was_use) {
  const std::lock_guard lock(mutex_);
  if (was_use) condition_.last_used = std::chrono::steady_clock::now();
  if (--condition_.n_leases == 0) given_back_.notify_all();
}

// The engine's queue limits apply to pooling too.
Status ServedModel::open_pooling(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto model, EmbeddingModel::open(config));
  const EmbeddingInfo info = model->info();
  pooling_info_ = {};
  pooling_info_.architecture = info.architecture;
  pooling_info_.max_model_len = info.max_tokens;
  PoolingQueue::Limits limits;
  if (config.max_queued_requests > 0)
    limits.calls = static_cast<size_t>(config.max_queued_requests);
  if (config.max_queued_tokens > 0) limits.tokens = static_cast<size_t>(config.max_queued_tokens);
  identity_ = fmt::format("{} {} {}", kVersion, identity_of_files(config.model), config.quantize);
  pooling_ = std::make_unique<PoolingQueue>(std::move(model), limits);
  return adapters_.open(adapter_opener());
}

Status ServedModel::open(const EngineConfig& config) {
  bool pools = settings_.runner == Runner::kPooling;
  if (settings_.runner == Runner::kAuto) {
    ASSIGN_OR_RETURN(pools, is_made_for_pooling(config.model));
  }
  if (pools) return open_pooling(config);
  ASSIGN_OR_RETURN(session_, Session::open(config));
  ChatConfig chat = settings_.chat;
  ASSIGN_OR_RETURN(chat.chat_template, read_chat_template(chat.chat_template));
  ASSIGN_OR_RETURN(chat_, ChatSetup::open(*session_, chat));
  defaults_ = session_->default_sampling_params();
  if (settings_.sampling.is_object())
    RETURN_IF_ERROR(params_from_json(settings_.sampling, defaults_));
  fingerprint_ = fingerprint_of(name(), session_->engine());
  identity_ = identity_of_model(name(), session_->engine());
  RETURN_IF_ERROR(adapters_.open(adapter_opener()));
  session_->engine().start();
  return {};
}

void ServedModel::close() {
  const std::lock_guard lock(opening_);
  chat_.reset();
  adapters_.close();
  session_.reset();
  pooling_.reset();
}

Status ServedModel::load(EngineConfig config) {
  set_state(ModelState::kLoading);
  Status opened;
  {
    const std::lock_guard lock(opening_);
    try {
      opened = open(config);
    } catch (const std::bad_alloc&) {
      opened = make_error(ErrorCode::kResourceExhausted, "out of memory");
    } catch (const std::system_error& error) {  // a thread could not be started
      opened = errorf(ErrorCode::kResourceExhausted, "{}", error.what());
    } catch (const std::exception& error) {
      opened = errorf(ErrorCode::kInternal, "{}", error.what());
    }
    if (opened) {
      max_model_len_ = info().max_model_len;
      max_num_seqs_ = std::max(this->config().max_num_seqs, 1);
      memory_ = info().weight_bytes - info().offloaded_bytes + info().kv_bytes;
      const Eyes* const eyes = session_ != nullptr ? session_->eyes() : nullptr;
      {
        const std::lock_guard known(mutex_);
        sees_ = eyes != nullptr && eyes->sees();
        sight_known_ = true;
      }
      watches_ = eyes != nullptr && eyes->watches();
      hears_ = eyes != nullptr && eyes->hears();
      if (eyes != nullptr) memory_ = memory_ + eyes->weight_bytes();
      runner_ = pools() ? Runner::kPooling : Runner::kGenerate;
    }
  }
  if (!opened) {
    close();
    set_state(ModelState::kFailed, opened.error());
    return opened;
  }
  set_state(ModelState::kLoaded);
  return {};
}

bool ServedModel::all_back_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return given_back_.wait_for(lock, time, [&] { return condition_.n_leases == 0; });
}

void ServedModel::unload(std::chrono::milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    if (condition_.state != ModelState::kLoaded) return;
    condition_.state = ModelState::kUnloading;
    condition_.changed = std::chrono::steady_clock::now();
  }
  constexpr std::chrono::seconds kToTell(5);  // for errors to reach the clients
  bool all_back = all_back_within(patience);
  stop();
  if (!all_back) all_back = all_back_within(kToTell);
  while (!all_back) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& cut : cuts_) cut();
    }
    all_back = all_back_within(std::chrono::seconds(1));
  }
  close();
  malloc_trim(0);
  set_state(ModelState::kUnloaded);
}

std::optional<bool> ServedModel::will_see() {
  if (condition().state == ModelState::kFailed) return std::nullopt;
  if (sight_known_) return sees_;
  if (settings_.runner == Runner::kPooling) return false;
  const auto seen = sees_by_its_files(settings_.engine);
  if (!seen) return std::nullopt;
  if (settings_.runner == Runner::kAuto) {
    const auto pools = is_made_for_pooling(settings_.engine.model);
    if (!pools) return std::nullopt;
    if (*pools) return false;
  }
  const std::lock_guard lock(mutex_);
  if (!sight_known_) sees_ = *seen;
  sight_known_ = true;
  return sees_;
}

Status ServedModel::status() {
  const std::unique_lock lock(opening_, std::try_to_lock);
  if (!lock) return {};
  if (session_ != nullptr) return engine().status();
  return pooling_ != nullptr ? status_of(pooling_->model()) : Status();
}

void ServedModel::stop() {
  const std::lock_guard lock(opening_);
  if (pooling_ != nullptr) pooling_->stop();
  if (session_ == nullptr) return;
  if (session_->eyes() != nullptr) session_->eyes()->stop();
  session_->engine().stop();
}

void ServedModel::end_by(Clock::time_point latest) {
  const std::lock_guard lock(opening_);
  if (session_ != nullptr) session_->engine().end_by(latest);
}

ServedAdapters::Opener ServedModel::adapter_opener() {
  return [this](const std::string& path) {
    return pools() ? pooling_->open_adapter(path) : engine().open_adapter(path);
  };
}

Metrics ServedModel::metrics() const {
  if (!pools()) return session_->metrics();
  Metrics metrics = pooling_->metrics();
  set_ranks(pooling_->model(), metrics);
  return metrics;
}

double ServedModel::seconds_of_queue() const {
  const Metrics metrics = pools() ? pooling_->metrics() : engine().metrics();
  const Histogram& busy =
      pools() ? metrics.e2e_request_latency_seconds : metrics.request_inference_time_seconds;
  if (busy.count == 0) return 0;
  const double mean = busy.sum / static_cast<double>(busy.count);
  const double n_at_once = std::max<double>(metrics.num_requests_running.value, 1);
  return mean / n_at_once * std::max<double>(metrics.num_requests_waiting.value, 1) / 2;
}

}  // namespace penstock
