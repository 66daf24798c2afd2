#include "images/processor_settings.h"

#include <cmath>

namespace penstock {
namespace {

// Names that do not change what is computed here: of every file, and of sound in files of models that hear too.
constexpr const char* kPlainNames[] = {"image_processor_type",
                                       "feature_extractor_type",
                                       "processor_class",
                                       "_processor_class",
                                       "_valid_processor_keys",
                                       "auto_map",
                                       "transformers_version",
                                       "data_format",
                                       "input_data_format",
                                       "return_tensors",
                                       "device",
                                       "disable_grouping",
                                       "default_to_square",
                                       "do_convert_rgb",
                                       "video_processor_type"};
constexpr const char* kSoundNames[] = {"chunk_length",
                                       "dither",
                                       "feature_size",
                                       "fft_length",
                                       "fft_overdrive",
                                       "frame_length",
                                       "hop_length",
                                       "input_scale_factor",
                                       "max_frequency",
                                       "mel_floor",
                                       "min_frequency",
                                       "n_fft",
                                       "n_samples",
                                       "nb_max_frames",
                                       "num_mel_bins",
                                       "padding_side",
                                       "padding_value",
                                       "per_bin_mean",
                                       "per_bin_stddev",
                                       "preemphasis",
                                       "preemphasis_htk_flavor",
                                       "return_attention_mask",
                                       "sampling_rate"};

nlohmann::json object_or_empty(const nlohmann::json& value) {
  return value.is_object() ? value : nlohmann::json::object();
}

const nlohmann::json* member(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

ProcessorSettings::ProcessorSettings(const nlohmann::json& request, const nlohmann::json& file,
                                     const nlohmann::json& processor)
    : ProcessorSettings("image processor", request, file, processor) {
  ignore_sounds();
}

void ProcessorSettings::ignore_sounds() {
  known_.insert(std::begin(kSoundNames), std::end(kSoundNames));
}

ProcessorSettings::ProcessorSettings(std::string what, const nlohmann::json& request,
                                     const nlohmann::json& file, const nlohmann::json& processor)
    : what_(std::move(what)),
      request_(object_or_empty(request)),
      file_(object_or_empty(file)),
      processor_(object_or_empty(processor)) {
  known_.insert(std::begin(kPlainNames), std::end(kPlainNames));
}

ProcessorSettings::ProcessorSettings(std::string what, const nlohmann::json& file,
                                     const nlohmann::json& processor)
    : ProcessorSettings(std::move(what), nlohmann::json::object(), file, processor) {}

const nlohmann::json* ProcessorSettings::find_in_request(const char* name) {
  known_.insert(name);
  return member(request_, name);
}

const nlohmann::json* ProcessorSettings::find(const char* name) {
  const auto* const asked = find_in_request(name);
  return asked != nullptr ? asked : member(file_, name);
}

const nlohmann::json* ProcessorSettings::find_in_processor(const char* name) {
  const auto* const asked = find_in_request(name);
  return asked != nullptr ? asked : member(processor_, name);
}

void ProcessorSettings::refuse(const std::string& name, const std::string& expected,
                               const std::string& got) {
  if (failed_)
    failed_ = errorf(ErrorCode::kInvalidArgument, "{}: {}: expected {}, got {}", what_, name,
                     expected, got.substr(0, 80));
}

int ProcessorSettings::as_integer(const nlohmann::json* value, const std::string& name,
                                  int fallback, int least, int most) {
  if (value == nullptr) return fallback;
  double number = value->is_number() ? value->get<double>() : NAN;
  if (number >= least && number <= most && number == std::floor(number))
    return static_cast<int>(number);
  refuse(name, fmt::format("an integer from {} to {}", least, most), value->dump());
  return fallback;
}

double ProcessorSettings::as_number(const nlohmann::json* value, const char* name,
                                    double fallback) {
  if (value == nullptr) return fallback;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  refuse(name, "a number", value->dump());
  return fallback;
}

bool ProcessorSettings::as_flag(const nlohmann::json* value, const char* name, bool fallback) {
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, "true or false", value->dump());
  return fallback;
}

std::string ProcessorSettings::as_text(const nlohmann::json* value, const char* name,
                                       const char* fallback) {
  if (value == nullptr) return fallback;
  if (value->is_object()) value = member(*value, "content");  // a token with its flags
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  refuse(name, "a text", value == nullptr ? "an object" : value->dump());
  return fallback;
}

bool ProcessorSettings::flag(const char* name, bool fallback) {
  return as_flag(find(name), name, fallback);
}
int ProcessorSettings::integer(const char* name, int fallback, int least, int most) {
  return as_integer(find(name), name, fallback, least, most);
}
double ProcessorSettings::number(const char* name, double fallback) {
  return as_number(find(name), name, fallback);
}
std::string ProcessorSettings::text(const char* name, const char* fallback) {
  return as_text(find(name), name, fallback);
}
int ProcessorSettings::processor_integer(const char* name, int fallback, int least, int most) {
  return as_integer(find_in_processor(name), name, fallback, least, most);
}
double ProcessorSettings::processor_number(const char* name, double fallback) {
  return as_number(find_in_processor(name), name, fallback);
}
bool ProcessorSettings::processor_flag(const char* name, bool fallback) {
  return as_flag(find_in_processor(name), name, fallback);
}
std::string ProcessorSettings::processor_text(const char* name, const char* fallback) {
  return as_text(find_in_processor(name), name, fallback);
}
bool ProcessorSettings::request_flag(const char* name, bool fallback) {
  return as_flag(find_in_request(name), name, fallback);
}
int ProcessorSettings::request_integer(const char* name, int fallback) {
  return as_integer(find_in_request(name), name, fallback, 1, 1 << 20);
}
double ProcessorSettings::request_number(const char* name, double fallback) {
  return as_number(find_in_request(name), name, fallback);
}

SizeSetting ProcessorSettings::size(const char* name, const SizeSetting& fallback, bool shortest) {
  constexpr int kMost = 1 << 28;  // an area of pixels, for some families
  const auto* const value = find(name);
  if (value == nullptr) return fallback;
  SizeSetting size;
  if (value->is_number()) {
    const int side = as_integer(value, name, 1, 1, kMost);
    (shortest ? size.shortest_edge : size.height) = side;
    if (!shortest) size.width = side;
    return size;
  }
  if (value->is_array() && value->size() == 2) {
    size.height = as_integer(&(*value)[0], name, 1, 1, kMost);
    size.width = as_integer(&(*value)[1], name, 1, 1, kMost);
    return size;
  }
  const std::pair<const char*, int SizeSetting::*> names[] = {
      {"height", &SizeSetting::height},
      {"width", &SizeSetting::width},
      {"shortest_edge", &SizeSetting::shortest_edge},
      {"longest_edge", &SizeSetting::longest_edge},
      {"max_height", &SizeSetting::max_height},
      {"min_pixels", &SizeSetting::shortest_edge},
      {"max_pixels", &SizeSetting::longest_edge},
      {"max_width", &SizeSetting::max_width}};
  if (!value->is_object() || value->empty()) refuse(name, "a size", value->dump());
  for (const auto& [key, side] : value->items()) {
    bool known = false;
    for (const auto& [side_name, field] : names)
      if (key == side_name) {
        known = true;
        if (!side.is_null())
          size.*field = as_integer(&side, std::string(name) + "." + key, 1, 1, kMost);
      }
    if (!known && !side.is_null())
      refuse(name, "height, width, shortest_edge, longest_edge, max_height or max_width", key);
  }
  return size;
}

std::array<float, 3> ProcessorSettings::channels(const char* name,
                                                 const std::array<float, 3>& fallback) {
  const auto* const value = find(name);
  if (value == nullptr) return fallback;
  std::array<float, 3> numbers{};
  bool fits = value->is_array() && value->size() == 3;
  for (size_t i = 0; fits && i < 3; ++i) {
    fits = (*value)[i].is_number();
    if (fits) numbers[i] = (*value)[i].get<float>();
  }
  if (!fits) refuse(name, "three numbers", value->dump());
  return fits ? numbers : fallback;
}

nlohmann::json ProcessorSettings::object(const char* name) {
  const auto* const value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) refuse(name, "an object", value->dump());
  return *value;
}

std::vector<std::pair<int, int>> ProcessorSettings::pairs(const char* name) {
  std::vector<std::pair<int, int>> found;
  const auto* const value = find(name);
  if (value == nullptr) return found;
  if (!value->is_array()) refuse(name, "a list of [height, width]", value->dump());
  for (const auto& pair : *value) {
    if (!pair.is_array() || pair.size() != 2) {
      refuse(name, "a list of [height, width]", pair.dump());
      break;
    }
    found.emplace_back(as_integer(&pair[0], name, 1, 1, 1 << 16),
                       as_integer(&pair[1], name, 1, 1, 1 << 16));
  }
  return found;
}

Status ProcessorSettings::status() const {
  if (!failed_) return failed_;
  for (const auto* const object : {&request_, &file_})
    for (const auto& [name, value] : object->items()) {
      const bool off = value.is_null() || value == false;
      if (!known_.contains(name) && !off)
        return errorf(ErrorCode::kUnsupported, "{}: the setting \"{}\" is not known for this type",
                      what_, name);
    }
  return {};
}

}  // namespace penstock
