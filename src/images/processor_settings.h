// Settings of an image processor, read by name from three places: a request's, preprocessor_config.json and
// processor_config.json.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace penstock {

// A size as the files write it, in pixels; 0 where a name is absent.
struct SizeSetting {
  int height = 0, width = 0, shortest_edge = 0, longest_edge = 0, max_height = 0, max_width = 0;
};

// Every reader marks its name as known and returns the fallback where the name is absent or null. The first
// impossible value, and then any name that nobody read, is what status() reports.
class ProcessorSettings {
 public:
  // The three are objects or null. `request` takes precedence over both others.
  ProcessorSettings(const nlohmann::json& request, const nlohmann::json& file,
                    const nlohmann::json& processor);
  // Settings of another processor than pictures', without a request's settings. what: the processor's
  // name in error messages.
  ProcessorSettings(std::string what, const nlohmann::json& file, const nlohmann::json& processor);
  // The same with a request's settings.
  ProcessorSettings(std::string what, const nlohmann::json& request, const nlohmann::json& file,
                    const nlohmann::json& processor);

  bool flag(const char* name, bool fallback);
  int integer(const char* name, int fallback, int least = 1, int most = 1 << 20);
  double number(const char* name, double fallback);
  std::string text(const char* name, const char* fallback);
  // min_pixels and max_pixels are other names of the edges, which are areas there. An integer is read as a square or, with `shortest`, as a shortest edge; a list as [height, width].
  SizeSetting size(const char* name, const SizeSetting& fallback, bool shortest = false);
  std::array<float, 3> channels(const char* name, const std::array<float, 3>& fallback);
  // A value that is an object; null without one.
  nlohmann::json object(const char* name);
  // A list of [height, width].
  std::vector<std::pair<int, int>> pairs(const char* name);

  // The same from the request, or else from processor_config.json.
  int processor_integer(const char* name, int fallback, int least = 0, int most = 1 << 20);
  double processor_number(const char* name, double fallback);
  bool processor_flag(const char* name, bool fallback);
  std::string processor_text(const char* name, const char* fallback);

  // Only from the request, where the processor overrides what the file says.
  bool request_flag(const char* name, bool fallback);
  int request_integer(const char* name, int fallback);
  double request_number(const char* name, double fallback);
  bool in_request(const char* name) const { return request_.contains(name); }
  // Whether a setting is true or false, and no number.
  bool is_flag(const char* name) {
    const nlohmann::json* const value = find(name);
    return value != nullptr && value->is_boolean();
  }
  bool in_file(const char* name) const { return file_.contains(name) && !file_[name].is_null(); }

  // Marks names as known whose value changes nothing.
  void ignore(std::initializer_list<const char*> names) {
    known_.insert(names.begin(), names.end());
  }
  // Marks all settings of sounds as known, which files of models that also hear have.
  void ignore_sounds();
  // Refuses a setting of this value by name.
  void refuse(const std::string& name, const std::string& expected, const std::string& got);
  // Errors: kInvalidArgument (a value), kUnsupported (a name that is not known, unless it is null or false).
  Status status() const;

 private:
  const nlohmann::json* find(const char* name);
  const nlohmann::json* find_in_processor(const char* name);
  const nlohmann::json* find_in_request(const char* name);
  int as_integer(const nlohmann::json* value, const std::string& name, int fallback, int least,
                 int most);
  double as_number(const nlohmann::json* value, const char* name, double fallback);
  bool as_flag(const nlohmann::json* value, const char* name, bool fallback);
  std::string as_text(const nlohmann::json* value, const char* name, const char* fallback);

  const std::string what_;
  nlohmann::json request_, file_, processor_;
  std::set<std::string> known_;
  Status failed_;
};

}  // namespace penstock
