// The LoRA adapters of a served model, which requests name instead of the model.
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
  std::string identity;                   // identity_of_files() when it was opened
  std::shared_ptr<const Adapter> opened;  // null while the model is not loaded
};
using ServedAdapterRef = std::shared_ptr<const ServedAdapter>;

// Thread-safe; open() and add() read files.
class ServedAdapters {
 public:
  // The adapters are opened together with the model.
  explicit ServedAdapters(const std::vector<AdapterSettings>& settings);

  // Opens an adapter for the loaded model: open_adapter() of its Engine or EmbeddingModel.
  using Opener = std::function<Result<std::shared_ptr<const Adapter>>(const std::string& path)>;
  // Opens all adapters for a model that was just loaded. Errors: the opener's, with the adapter's
  // name.
  Status open(const Opener& opener);
  void close();

  // Adds an adapter, which persists over reloads of the model. Errors: kInvalidArgument (the name
  // is taken, unless `replace`), kResourceExhausted (kMostAdapters reached), those of the opener.
  static constexpr size_t kMostAdapters = 1000;
  Status add(const Opener& opener, const AdapterSettings& adapter, bool replace);
  // Running requests keep the adapter. false: unknown name.
  bool remove(std::string_view name);

  // null: unknown name
  ServedAdapterRef find(std::string_view name) const;
  std::vector<ServedAdapterRef> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<ServedAdapterRef> adapters_;
};

}  // namespace penstock
