// What to do to a checkpoint: method, encoding and the layout of the files, from what the user
// asked for.
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
// How quantized layers lie in the output.
enum class Layout : uint8_t { kGguf, kPlain, kGptq, kAwq, kCompressed, kBitsAndBytes, kBitNet };
enum class ActOrder : uint8_t {
  kNone,    // inputs in their own order
  kStatic,  // the most active inputs first, groups as they lie: costs nothing at run time
  // groups of inputs that are about equally active: the file says which input is in which group
  kGroup,
};

// As typed; "" and -1 are the defaults of the type and method.
struct RecipeOptions {
  std::string method = "rtn";
  std::string type;
  std::string layout;
  int group_size = -1;  // 0: one group per row
  bool asymmetric = false;
  // Shrink the range of each group to where the squared error is least. Default: awq does (its
  // clipping leaves q and k alone), rtn does not.
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
  GroupCoding coding;  // of the other layouts, and of gptq into GGUF
  ActivationCoding::Kind activations = ActivationCoding::Kind::kNone;
  ActOrder act_order = ActOrder::kNone;
  bool search = false, clip = true;
  double damping = 0.01, smoothing = -1;

  bool calibrates() const {
    return method != Method::kRtn || activations == ActivationCoding::Kind::kInt8Static;
  }
  // Identifies the work, for resuming.
  std::string fingerprint() const;
};

// One row for each type that is not a GGUF encoding.
struct TypeRow {
  std::string_view name;  // of the GroupType
  Layout layout;          // default
  std::string_view help;
};
std::span<const TypeRow> quantize_types();

// Errors: kInvalidArgument, with what would be possible.
Result<Recipe> make_recipe(const RecipeOptions& options, Naming out);

}  // namespace penstock
