// The LoRA adapters of a served model: names that requests may give in the place of the model's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/engine.h"

namespace penstock {

struct AdapterSettings {
  std::string name;
  std::string path;  // a PEFT directory or a GGUF file
};

struct ServedAdapter : AdapterSettings {
  int64_t created = 0;                    // unix time
  std::string identity;                   // of its files when they were opened
  std::shared_ptr<const Adapter> opened;  // null while the model is not loaded
};
using ServedAdapterRef = std::shared_ptr<const ServedAdapter>;

// Any thread; open() and add() read files.
class ServedAdapters {
 public:
  // Of the settings, to be opened with the model.
  explicit ServedAdapters(const std::vector<AdapterSettings>& settings);

  // Opens an adapter for the model that is loaded: open_adapter() of its Engine or EmbeddingModel.
  using Opener = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& path)>;
  // Opens all for a model that was just loaded. Errors: the opener's, with the adapter's name.
  Status open(const Opener& opener);
  void close();

  // Another one, which stays over reloads of the model. Errors: kInvalidArgument, the name is taken
  // (unless `replace`); kResourceExhausted, there are kMostAdapters; those of the opener.
  static constexpr size_t kMostAdapters = 1000;
  Status add(const Opener& opener, const AdapterSettings& adapter, bool replace);
  // Requests that have it go on. False: there is none of that name.
  bool remove(std::string_view name);

  // Null: there is none.
  ServedAdapterRef find(std::string_view name) const;
  std::vector<ServedAdapterRef> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<ServedAdapterRef> adapters_;
};

}  // namespace penstock
