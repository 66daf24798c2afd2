#include "server/services/served_models.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "base/memory.h"
#include "engine/open/cache_memory.h"
#include "server/services/file_identity.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kShareOfFree = 0.85;
constexpr int64_t kLeastCache = 16 << 20;
constexpr auto kRetryAfter = std::chrono::seconds(10);  // a model that could not be loaded

bool has_name(const ServedModel& model, std::string_view name) {
  return std::ranges::find(model.names(), name) != model.names().end();
}

bool is_loaded(const ServedModel& model) { return model.condition().state == ModelState::kLoaded; }

// Returns the bytes of the model's files that loading keeps in memory.
int64_t bytes_in_memory(const EngineConfig& config) {
  return std::max<int64_t>(weight_bytes_of(config.model) - offloaded_file_bytes(config), 0);
}

}  // namespace

int64_t weight_bytes_of(const std::string& model) {
  std::error_code error;
  const fs::path path = fs::canonical(model, error);
  if (error) return 0;
  const bool folder = fs::is_directory(path, error);
  const std::string stem = shard_stem(path.stem().string());
  const bool older = folder && !fs::exists(path / "model.safetensors", error) &&
                     // PyTorch checkpoint
                     !fs::exists(path / "model.safetensors.index.json", error);
  int64_t bytes = 0;
  for (fs::directory_iterator file(folder ? path : path.parent_path(), error), end;
       !error && file != end; file.increment(error)) {
    const fs::path& name = file->path();
    const bool counts =
        folder ? name.extension() == ".safetensors" ||
                     (older && name.filename().string().starts_with("pytorch_model"))
               : name.extension() == path.extension() && shard_stem(name.stem().string()) == stem;
    std::error_code ignored;
    if (const auto size = fs::file_size(name, ignored); counts && !ignored)
      bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

ServedModels::~ServedModels() {
  stop();
  if (watcher_.joinable()) watcher_.join();
}

Status ServedModels::add(std::unique_ptr<ServedModel> model) {
  std::vector<std::string> names = model->names();
  for (const AdapterSettings& adapter : model->settings().adapters) names.push_back(adapter.name);
  if (names.empty())
    return errorf(ErrorCode::kInvalidArgument, "served model name: expected a name, got none");
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      return errorf(ErrorCode::kInvalidArgument, "served model name: expected a name, got none");
    const bool own = std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i),
                               names[i]) != names.begin() + static_cast<ptrdiff_t>(i);
    const bool other = std::ranges::any_of(models_, [&](const auto& one) {
      return has_name(*one, names[i]) || one->adapters().find(names[i]) != nullptr;
    });
    if (own || other) {
      return errorf(ErrorCode::kInvalidArgument,
                    "served model name: expected every name once, got {} for {}", names[i],
                    own ? "the same model twice" : "two models");
    }
  }
  models_.push_back(std::move(model));
  return {};
}

Status ServedModels::check_adapter_name(std::string_view name, const ServedModel& base,
                                        bool replace) const {
  for (const auto& model : models_) {
    const bool may_have_it = replace && model.get() == &base;
    if (has_name(*model, name) || (!may_have_it && model->adapters().find(name) != nullptr))
      return errorf(ErrorCode::kInvalidArgument, "lora_name: expected a new name, got {}", name);
  }
  return {};
}

ServedModel* ServedModels::named(std::string_view name) const {
  for (const auto& model : models_) {
    if (has_name(*model, name) || model->adapters().find(name) != nullptr) return model.get();
  }
  return nullptr;
}

Result<ServedModel*> ServedModels::find(std::string_view name, std::string_view key) const {
  std::vector<std::string> names;
  ServedModel* first = nullptr;
  for (const auto& model : models_) {
    if (!model->serves(key)) continue;
    if (has_name(*model, name) || model->adapters().find(name) != nullptr) return model.get();
    if (first == nullptr) first = model.get();
    names.insert(names.end(), model->names().begin(), model->names().end());
    for (const ServedAdapterRef& adapter : model->adapters().all()) names.push_back(adapter->name);
  }
  if (first == nullptr) return errorf(ErrorCode::kNotFound, "model: this API key may use none");
  if (name.empty() || any_name_) return first;
  return errorf(ErrorCode::kNotFound, "model: expected {}, got {}", fmt::join(names, " or "), name);
}

Result<ModelLease> ServedModels::lease(std::string_view name, std::string_view key) const {
  ASSIGN_OR_RETURN(ServedModel* const model, find(name, key));
  if (ModelLease lease = model->lease()) return lease;
  RETURN_IF_ERROR(model->load_failure());
  return errorf(ErrorCode::kCancelled, "model: {} is {}: try again", model->name(),
                name_of(model->condition().state));
}

std::vector<ModelLease> ServedModels::lease_all() const {
  std::vector<ModelLease> leases;
  for (const auto& model : models_) {
    ModelLease lease = model->lease(false);
    if (lease == nullptr) return {};
    leases.push_back(std::move(lease));
  }
  return leases;
}

bool ServedModels::some_unloaded() const {
  return std::ranges::any_of(models_, [](const auto& model) {
    const ServedModel::Condition now = model->condition();
    return now.state != ModelState::kLoaded || now.idle_timeout.has_value();
  });
}

Status ServedModels::load() {
  Status first;
  bool any = false;
  for (const auto& model : models_) {
    if (!model->settings().at_start) {
      any = true;
      continue;
    }
    const Status loaded = load(*model, true);
    any |= loaded.has_value();
    if (loaded) continue;
    if (models_.size() == 1) return loaded;
    log().error("{}: {}", model->name(), loaded.error().message);
    if (first) first = errorf(loaded.error().code, "{}: {}", model->name(), loaded.error().message);
  }
  if (!any) return first;
  if (std::ranges::any_of(models_,
                          [](const auto& one) { return one->settings().idle_timeout.count() > 0; }))
    start_watch();
  ready_ = true;
  return {};
}

Status ServedModels::load(ServedModel& model, bool again) {
  const std::lock_guard lock(loading_);
  return load_if_needed(model, again, Evicts::kAnybody);
}

Result<ModelLease> ServedModels::load_and_lease(ServedModel& model) {
  const std::lock_guard lock(loading_);
  RETURN_IF_ERROR(load_if_needed(model, false, Evicts::kAnybody));
  return model.lease();
}

Status ServedModels::load_beside_busy_ones(ServedModel& model) {
  const std::lock_guard lock(loading_);
  return load_if_needed(model, false, Evicts::kUnused);
}

// REQUIRES: loading_.
Status ServedModels::load_if_needed(ServedModel& model, bool again, Evicts evicts) {
  if (stopped_) return errorf(ErrorCode::kCancelled, "the server is shutting down");
  if (sleeps_) return errorf(ErrorCode::kCancelled, "the server is asleep until POST /wake_up");
  const ServedModel::Condition now = model.condition();
  if (now.state == ModelState::kLoaded) return {};
  if (now.state == ModelState::kFailed && !again && Clock::now() - now.changed < kRetryAfter)
    return tl::unexpected(now.failure);
  return load_now(model, evicts);
}

Status ServedModels::load_now(ServedModel& model, Evicts evicts) {
  EngineConfig config = model.settings().engine;
  ASSIGN_OR_RETURN(const int64_t bytes, make_room(model, evicts));
  if (bytes > 0 && config.kv_cache_memory == 0)
    config.kv_cache_memory = std::max<int64_t>(bytes - bytes_in_memory(config), 1 << 20);
  const Clock::time_point begin = Clock::now();
  if (Status loaded = model.load(std::move(config)); !loaded) {
    if (ready_) log().error("{} could not be loaded: {}", model.name(), loaded.error().message);
    return loaded;
  }
  if (models_.size() > 1) {
    log().info("{} is loaded: {:.2f} s, {} MiB", model.name(),
               std::chrono::duration<double>(Clock::now() - begin).count(), model.memory() >> 20);
  }
  return {};
}

Result<int64_t> ServedModels::make_room(const ServedModel& model, Evicts evicts) {
  const ModelSettings& settings = model.settings();
  if (models_.size() == 1 && budget_ == 0) return settings.memory;
  if (budget_ == 0)
    budget_ = static_cast<int64_t>(kShareOfFree * static_cast<double>(available_memory()));
  const int64_t weights = bytes_in_memory(settings.engine);
  const int64_t least =
      weights +
      (settings.engine.kv_cache_memory > 0 ? settings.engine.kv_cache_memory : kLeastCache);
  const int64_t share = budget_ / static_cast<int64_t>(models_.size());
  const int64_t asked = settings.memory > 0                   ? settings.memory
                        : settings.engine.kv_cache_memory > 0 ? least
                                                              : std::max(share, least);
  if (asked > budget_) {
    return errorf(ErrorCode::kResourceExhausted,
                  "memory: {} takes {} MiB, and all models together may take {}", model.name(),
                  asked >> 20, budget_ >> 20);
  }
  while (taken() + asked > budget_) {
    ServedModel* const other = least_recently_used();
    if (other == nullptr) {
      return errorf(ErrorCode::kResourceExhausted,
                    "memory: {} takes {} MiB, and pinned models leave {} of {}", model.name(),
                    asked >> 20, (budget_ - taken()) >> 20, budget_ >> 20);
    }
    if (evicts == Evicts::kUnused && other->condition().n_leases > 0)
      return errorf(ErrorCode::kResourceExhausted, "memory: {} is in use", other->name());
    log().info("{} makes room for {}", other->name(), model.name());
    other->unload(patience_);
  }
  return asked;
}

int64_t ServedModels::taken() const {
  int64_t bytes = 0;
  for (const auto& model : models_) bytes += is_loaded(*model) ? model->memory() : 0;
  return bytes;
}

ServedModel* ServedModels::least_recently_used() const {
  ServedModel* oldest = nullptr;
  std::pair<bool, Clock::time_point> least;
  for (const auto& model : models_) {
    const ServedModel::Condition now = model->condition();
    if (now.state != ModelState::kLoaded || model->settings().pinned) continue;
    // busy models last
    const std::pair<bool, Clock::time_point> used{now.n_leases > 0, now.last_used};
    if (oldest == nullptr || used < least) oldest = model.get(), least = used;
  }
  return oldest;
}

void ServedModels::unload(ServedModel& model) {
  const std::lock_guard lock(loading_);
  model.unload(patience_);
}

Status ServedModels::reload(ServedModel& model) {
  const std::lock_guard lock(loading_);
  model.unload(patience_);
  return load_if_needed(model, true, Evicts::kAnybody);
}

void ServedModels::sleep(std::chrono::milliseconds patience) {
  const std::lock_guard lock(loading_);
  if (sleeps_.exchange(true)) return;
  const auto end = Clock::now() + patience;
  for (const auto& model : models_) {
    if (!is_loaded(*model)) continue;
    to_wake_.push_back(model.get());
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    model->unload(std::max(left, std::chrono::milliseconds(0)));
  }
  log().info("asleep: {} models are unloaded", to_wake_.size());
}

Status ServedModels::wake() {
  const std::lock_guard lock(loading_);
  if (!sleeps_.exchange(false)) return {};
  Status first;
  for (ServedModel* const model : std::exchange(to_wake_, {})) {
    const Status loaded = load_if_needed(*model, true, Evicts::kUnused);
    if (!loaded && first)
      first = errorf(loaded.error().code, "{}: {}", model->name(), loaded.error().message);
  }
  log().info("awake");
  return first;
}

void ServedModels::keep(ServedModel& model, std::optional<std::chrono::milliseconds> time) {
  if (model.settings().pinned) return;
  model.set_idle_timeout(time);
  if (time) start_watch();
}

void ServedModels::start_watch() {
  const std::lock_guard lock(watch_mutex_);
  if (!stopped_ && !watcher_.joinable()) watcher_ = std::thread([this] { watch_idle(); });
}

void ServedModels::watch_idle() {
  std::unique_lock wait(watch_mutex_);
  while (!watch_.wait_for(wait, std::chrono::milliseconds(200), [&] { return stopped_.load(); })) {
    wait.unlock();
    try {
      unload_idle_ones();
    } catch (const std::bad_alloc&) {  // retried the next time
    }
    wait.lock();
  }
}

void ServedModels::unload_idle_ones() {
  for (const auto& model : models_) {
    if (!model->condition().is_idle()) continue;
    const std::lock_guard lock(loading_);
    const ServedModel::Condition now = model->condition();
    if (!now.is_idle()) continue;
    log().info("{} is unloaded: nobody asked for it in {} s", model->name(),
               std::chrono::duration<double>(*now.idle_timeout).count());
    model->unload(patience_);
  }
}

Status ServedModels::status() const {
  for (const auto& model : models_) RETURN_IF_ERROR(model->status());
  return {};
}

void ServedModels::end_by(Clock::time_point latest) {
  for (const auto& model : models_) model->end_by(latest);
}

void ServedModels::stop() {
  {
    const std::lock_guard lock(watch_mutex_);
    stopped_ = true;
  }
  watch_.notify_all();
  for (const auto& model : models_) model->stop();
}

}  // namespace penstock
