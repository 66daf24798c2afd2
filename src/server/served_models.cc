#include "server/served_models.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/checksum.h"
#include "frontend/embedding_model.h"
#include "penstock/version.h"

namespace penstock {
namespace {

std::string fingerprint_of(const std::string& name, const Engine& engine) {
  std::string all =
      fmt::format("{} {} {} {}", kVersion, name, engine.info().architecture, engine.info().backend);
  EngineConfig::visit(engine.config(), [&](const char* field, const auto& value, const char*) {
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) all += fmt::format(" {}={}", field, *value);
    } else {
      all += fmt::format(" {}={}", field, value);
    }
  });
  return fmt::format("penstock-{}-{:08x}", kVersion,
                     static_cast<uint32_t>(checksum64(std::as_bytes(std::span(all)))));
}

bool has_name(const ServedModel& model, std::string_view name) {
  return std::ranges::find(model.names(), name) != model.names().end();
}

}  // namespace

ServedModel::ServedModel(std::vector<std::string> names, EngineConfig engine, ChatConfig chat, Runner runner)
    : names_(std::move(names)),
      engine_config_(std::move(engine)),
      chat_config_(std::move(chat)),
      runner_(runner),
      created_(std::time(nullptr)) {}

// The engine's limits of what waits hold for vectors too.
Status ServedModel::load_pooling() {
  ASSIGN_OR_RETURN(auto model, EmbeddingModel::open(engine_config_));
  const EmbeddingInfo info = model->info();
  pooling_info_.architecture = info.architecture;
  pooling_info_.max_model_len = info.max_tokens;
  PoolingQueue::Limits limits;
  if (engine_config_.max_queued_requests > 0)
    limits.calls = static_cast<size_t>(engine_config_.max_queued_requests);
  if (engine_config_.max_queued_tokens > 0)
    limits.tokens = static_cast<size_t>(engine_config_.max_queued_tokens);
  pooling_ = std::make_unique<PoolingQueue>(std::move(model), limits);
  loaded_.store(true);
  return {};
}

Status ServedModel::load() {
  bool pools = runner_ == Runner::kPooling;
  if (runner_ == Runner::kAuto) {
    ASSIGN_OR_RETURN(pools, is_made_for_pooling(engine_config_.model));
  }
  if (pools) return load_pooling();
  ASSIGN_OR_RETURN(session_, Session::open(engine_config_));
  ChatConfig chat = chat_config_;
  ASSIGN_OR_RETURN(chat.chat_template, read_chat_template(chat.chat_template));
  ASSIGN_OR_RETURN(chat_, ChatSetup::open(*session_, chat));
  fingerprint_ = fingerprint_of(name(), session_->engine());
  session_->engine().start();
  loaded_.store(true);
  return {};
}

void ServedModel::stop() {
  if (!loaded_.load()) return;
  if (pools()) {
    pooling_->stop();
  } else {
    session_->engine().stop();
  }
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

Status ServedModels::add(std::unique_ptr<ServedModel> model) {
  const auto& names = model->names();
  if (names.empty())
    return errorf(ErrorCode::kInvalidArgument, "served model name: expected a name, got none");
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      return errorf(ErrorCode::kInvalidArgument, "served model name: expected a name, got none");
    const bool own = std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
                     names.begin() + static_cast<ptrdiff_t>(i);
    const bool other =
        std::ranges::any_of(models_, [&](const auto& one) { return has_name(*one, names[i]); });
    if (own || other) {
      return errorf(ErrorCode::kInvalidArgument, "served model name: expected every name once, got {} for {}",
                    names[i], own ? "the same model twice" : "two models");
    }
  }
  models_.push_back(std::move(model));
  return {};
}

Result<ServedModel*> ServedModels::find(std::string_view name) const {
  if (name.empty()) return models_.front().get();
  for (const auto& model : models_) {
    if (has_name(*model, name)) return model.get();
  }
  if (any_name_) return models_.front().get();
  std::vector<std::string> names;
  for (const auto& model : models_) names.insert(names.end(), model->names().begin(), model->names().end());
  return errorf(ErrorCode::kNotFound, "model: expected {}, got {}", fmt::join(names, " or "), name);
}

Status ServedModels::load() {
  for (const auto& model : models_) {
    const Status loaded = model->load();
    if (loaded) continue;
    if (models_.size() == 1) return loaded;
    return errorf(loaded.error().code, "{}: {}", model->name(), loaded.error().message);
  }
  return {};
}

bool ServedModels::loaded() const {
  return std::ranges::all_of(models_, [](const auto& model) { return model->loaded(); });
}

void ServedModels::stop() {
  for (const auto& model : models_) model->stop();
}

}  // namespace penstock
