#include "server/services/served_adapters.h"

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "server/services/file_identity.h"

namespace penstock {
namespace {

ServedAdapterRef adapter_of(const AdapterSettings& settings,
                            std::shared_ptr<const Adapter> opened) {
  auto adapter = std::make_shared<ServedAdapter>();
  static_cast<AdapterSettings&>(*adapter) = settings;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  adapter->created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  adapter->opened = std::move(opened);
  adapter->identity = identity_of_files(settings.path);
  return adapter;
}

Result<std::shared_ptr<const Adapter>> open_named(const ServedAdapters::Opener& opener,
                                                  const AdapterSettings& adapter) {
  auto opened = opener(adapter.path);
  if (opened) return opened;
  return errorf(opened.error().code, "adapter {}: {}", adapter.name, opened.error().message);
}

}  // namespace

ServedAdapters::ServedAdapters(const std::vector<AdapterSettings>& settings) {
  for (const AdapterSettings& one : settings) adapters_.push_back(adapter_of(one, nullptr));
}

Status ServedAdapters::open(const Opener& opener) {
  for (const ServedAdapterRef& known : all()) {
    ASSIGN_OR_RETURN(auto opened, open_named(opener, *known));
    auto adapter = std::make_shared<ServedAdapter>(*known);
    adapter->opened = std::move(opened);
    adapter->identity = identity_of_files(adapter->path);
    const std::lock_guard lock(mutex_);
    std::ranges::replace(adapters_, known, ServedAdapterRef(std::move(adapter)));
  }
  return {};
}

void ServedAdapters::close() {
  const std::lock_guard lock(mutex_);
  for (ServedAdapterRef& adapter : adapters_) {
    auto closed = std::make_shared<ServedAdapter>(*adapter);
    closed->opened.reset();
    adapter = std::move(closed);
  }
}

Status ServedAdapters::add(const Opener& opener, const AdapterSettings& adapter, bool replace) {
  const auto taken = [&] {
    return errorf(ErrorCode::kInvalidArgument, "lora_name: expected a new name, got {}",
                  adapter.name);
  };
  const auto too_many = [] {
    return errorf(ErrorCode::kResourceExhausted,
                  "lora_name: {} adapters are loaded, the most there may be: unload some",
                  kMostAdapters);
  };
  const ServedAdapterRef before = find(adapter.name);
  if (!replace && before != nullptr) return taken();
  if (before == nullptr && all().size() >= kMostAdapters) return too_many();
  ASSIGN_OR_RETURN(auto opened, open_named(opener, adapter));
  ServedAdapterRef added = adapter_of(adapter, std::move(opened));
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::find(adapters_, adapter.name, [](const auto& one) { return one->name; });
  if (known == adapters_.end()) {
    if (adapters_.size() >= kMostAdapters) return too_many();
    adapters_.push_back(std::move(added));
  } else if (replace) {
    *known = std::move(added);
  } else {
    return taken();
  }
  return {};
}

bool ServedAdapters::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(adapters_, [&](const auto& one) { return one->name == name; }) > 0;
}

ServedAdapterRef ServedAdapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const ServedAdapterRef& adapter : adapters_) {
    if (adapter->name == name) return adapter;
  }
  return nullptr;
}

std::vector<ServedAdapterRef> ServedAdapters::all() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

}  // namespace penstock
