#include "server/api/renamed_params.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "frontend/json_fields.h"
#include "penstock/sampling_params.h"

namespace penstock {

nlohmann::json schemas_of_renamed(std::span<const RenamedParam> params) {
  nlohmann::json fields = nlohmann::json::object();
  const SamplingParams defaults;
  SamplingParams::visit(defaults, [&](const char* name, const auto& value, const char* help,
                                      const SamplingParams::Range& range) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      constexpr bool whole = std::is_integral_v<T>;
      const auto bound = [](double x) {
        return whole ? nlohmann::json(static_cast<int64_t>(x)) : nlohmann::json(x);
      };
      for (const RenamedParam& one : params) {
        if (std::string_view(one.field) != name) continue;
        nlohmann::json field = {{"type", {whole ? "integer" : "number", "null"}},
                                {"description", help}};
        if (range.limited()) {
          field[range.above_min ? "exclusiveMinimum" : "minimum"] = bound(range.min);
          field["maximum"] = bound(range.max);
        }
        fields[one.name] = std::move(field);
      }
    }
  });
  return fields;
}

void take_renamed(const nlohmann::ordered_json& object, std::span<const RenamedParam> renamed,
                  nlohmann::ordered_json& params) {
  for (const RenamedParam& one : renamed) {
    if (const auto& value = get_field(object, one.name); !value.is_null())
      params[one.field] = value;
  }
}

}  // namespace penstock
