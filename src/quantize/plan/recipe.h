// The recipe of a quantization: method, encoding and file layout, derived from the user's
// options.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"
#include "model/sources/ftype.h"
#include "quant/group_types.h"

namespace penstock {

enum class Method : uint8_t { kRtn, kGptq, kAwq, kSmoothQuant };
// Format of quantized layers in the output.
enum class Layout : uint8_t { kGguf, kPlain, kGptq, kAwq, kCompressed, kBitsAndBytes, kBitNet };
enum class ActOrder : uint8_t {
  kNone,    // inputs in their original order
  kStatic,  // most active inputs first, original groups: no cost at run time
  // groups of similarly active inputs: the file stores the group of each input
  kGroup,
};

// Options as typed; "" and -1 are defaults of the type and method.
struct RecipeOptions {
  std::string method = "rtn";
  std::string type;
  std::string layout;
  int group_size = -1;  // 0: one group per row
  bool asymmetric = false;
  // Whether each group's range is reduced to that of the least squared error. Default: yes for awq
  // (whose clipping skips q and k), no for rtn.
  std::optional<bool> search;
  std::string act_order;
  double damping = 0.01;
  double smoothing = -1;  // smoothquant: alpha; -1 searches
  bool clip = true;       // awq: search clipping
};

struct Recipe {
  Method method = Method::kRtn;
  Layout layout = Layout::kGguf;
  std::string type;    // lower case
  FileType ftype{};    // kGguf, kPlain
  GroupCoding coding;  // of non-GGUF layouts, and of gptq with GGUF
  ActivationCoding::Kind activations = ActivationCoding::Kind::kNone;
  ActOrder act_order = ActOrder::kNone;
  bool search = false, clip = true;
  double damping = 0.01, smoothing = -1;

  bool calibrates() const {
    return method != Method::kRtn || activations == ActivationCoding::Kind::kInt8Static;
  }
  // Returns a key of the work, for resuming.
  std::string fingerprint() const;
};

// One row per type that is not a GGUF encoding.
struct TypeRow {
  std::string_view name;  // name of the GroupType
  Layout layout;          // default
  std::string_view help;
};
std::span<const TypeRow> quantize_types();

// Errors: kInvalidArgument, with the possible values.
Result<Recipe> make_recipe(const RecipeOptions& options, Naming out);

}  // namespace penstock
