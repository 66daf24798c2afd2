#include "formats/foreign_types.h"

#include <fmt/format.h>

#include <string_view>

namespace penstock {
namespace {

enum class Origin : uint8_t {
  kWithdrawn,    // no longer part of the format
  kActivations,  // inside products only, files never have it
  kIk,           // ik_llama.cpp's own encoding
  kIkRows,       // ik_llama.cpp's interleaved rows of another type
};

struct Foreign {
  uint32_t id;
  std::string_view name;
  Origin origin;
  std::string_view instead;  // the type to convert to; "": none
};

using enum Origin;

constexpr Foreign kForeign[] = {
    {4, "q4_2", kWithdrawn, ""},
    {5, "q4_3", kWithdrawn, ""},
    {9, "q8_1", kActivations, ""},
    {15, "q8_k", kActivations, ""},
    {31, "q4_0_4_4", kWithdrawn, "q4_0"},
    {32, "q4_0_4_8", kWithdrawn, "q4_0"},
    {33, "q4_0_8_8", kWithdrawn, "q4_0"},
    {36, "iq4_nl_4_4", kWithdrawn, "iq4_nl"},
    {37, "iq4_nl_4_8", kWithdrawn, "iq4_nl"},
    {38, "iq4_nl_8_8", kWithdrawn, "iq4_nl"},
    {97, "q8_0_x4", kActivations, ""},
    {98, "q8_1_x4", kActivations, ""},
    {99, "q8_2_x4", kActivations, ""},
    {133, "q6_0", kIk, "q6_k"},
    {134, "iq1_bn", kIk, "tq1_0"},
    {135, "iq2_bn", kIk, "tq2_0"},
    {136, "q8_k64", kActivations, ""},
    {137, "iq2_k", kIk, "iq2_s"},
    {138, "iq3_k", kIk, "iq3_s"},
    {139, "iq4_k", kIk, "iq4_xs"},
    {140, "iq5_k", kIk, "q5_k"},
    {141, "iq6_k", kIk, "q6_k"},
    {144, "iq4_ks", kIk, "iq4_xs"},
    {145, "iq2_ks", kIk, "iq2_xs"},
    {146, "iq4_kss", kIk, "iq4_xs"},
    {147, "q8_k16", kActivations, ""},
    {148, "q8_k32", kActivations, ""},
    {149, "q8_kr8", kActivations, ""},
    {150, "q8_k128", kActivations, ""},
    {151, "q8_kv", kIk, "q8_0"},
    {152, "iq5_ks", kIk, "q5_k"},
    {153, "iq2_kt", kIk, "iq2_xs"},
    {154, "iq3_kt", kIk, "iq3_xxs"},
    {155, "iq4_kt", kIk, "iq4_xs"},
    {156, "iq3_ks", kIk, "iq3_s"},
    {157, "iq2_kl", kIk, "iq2_s"},
    {158, "iq1_kt", kIk, "iq1_m"},
    {202, "q4_0_r8", kIkRows, "q4_0"},
    {206, "q5_0_r4", kIkRows, "q5_0"},
    {208, "q8_0_r8", kIkRows, "q8_0"},
    {210, "q2_k_r4", kIkRows, "q2_k"},
    {211, "q3_k_r4", kIkRows, "q3_k"},
    {212, "q4_k_r4", kIkRows, "q4_k"},
    {213, "q5_k_r4", kIkRows, "q5_k"},
    {214, "q6_k_r4", kIkRows, "q6_k"},
    {216, "iq2_xxs_r4", kIkRows, "iq2_xxs"},
    {217, "iq2_xs_r4", kIkRows, "iq2_xs"},
    {218, "iq3_xxs_r4", kIkRows, "iq3_xxs"},
    {219, "iq1_s_r4", kIkRows, "iq1_s"},
    {220, "iq4_nl_r4", kIkRows, "iq4_nl"},
    {221, "iq3_s_r4", kIkRows, "iq3_s"},
    {222, "iq2_s_r4", kIkRows, "iq2_s"},
    {223, "iq4_xs_r8", kIkRows, "iq4_xs"},
    {229, "iq1_m_r4", kIkRows, "iq1_m"},
    {230, "bf16_r16", kIkRows, "bf16"},
    {233, "q6_0_r4", kIkRows, "q6_k"},
    {335, "iq2_bn_r4", kIkRows, "tq2_0"},
    {337, "iq2_k_r4", kIkRows, "iq2_s"},
    {338, "iq3_k_r4", kIkRows, "iq3_s"},
    {339, "iq4_k_r4", kIkRows, "iq4_xs"},
    {340, "iq5_k_r4", kIkRows, "q5_k"},
    {344, "iq4_ks_r4", kIkRows, "iq4_xs"},
    {352, "iq5_ks_r4", kIkRows, "q5_k"},
    {353, "mxfp4_r8", kIkRows, "mxfp4"},
    {397, "q8_k_r16", kIkRows, "q8_0"},
    {398, "q8_kv_r8", kIkRows, "q8_0"},
    {399, "q8_k_r8", kIkRows, "q8_0"},
};

std::string_view text_of(Origin origin) {
  switch (origin) {
    case kWithdrawn: return "no longer part of the format";
    case kActivations: return "which activations have inside products and files never";
    case kIk: return "an encoding of ik_llama.cpp alone";
    case kIkRows: break;
  }
  return "rows as ik_llama.cpp repacks them";
}

}  // namespace

std::string foreign_type(uint32_t id) {
  for (const Foreign& foreign : kForeign) {
    if (foreign.id != id) continue;
    std::string text = fmt::format("{}, {}", foreign.name, text_of(foreign.origin));
    if (!foreign.instead.empty())
      text += fmt::format("; {} is what to quantize the original to", foreign.instead);
    return text;
  }
  return "unknown";
}

}  // namespace penstock
