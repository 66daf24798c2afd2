#include "server/served_models.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/checksum.h"
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

ServedModel::ServedModel(std::vector<std::string> names, EngineConfig engine, ChatConfig chat)
    : names_(std::move(names)),
      engine_config_(std::move(engine)),
      chat_config_(std::move(chat)),
      created_(std::time(nullptr)) {}

Status ServedModel::load() {
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
  if (loaded_.load()) session_->engine().stop();
}

double ServedModel::seconds_of_queue() const {
  const Metrics metrics = engine().metrics();
  const Histogram& busy = metrics.request_inference_time_seconds;
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
