#include "quantize/plan/recipe.h"

#include <algorithm>

namespace penstock {

namespace {

using Kind = ActivationCoding::Kind;

// THE list: one row for each GroupType.
constexpr TypeRow kTypes[] = {
    {"int8", Layout::kCompressed, "8-bit codes"},
    {"int7", Layout::kGptq, "7-bit codes"},
    {"int6", Layout::kGptq, "6-bit codes"},
    {"int5", Layout::kGptq, "5-bit codes"},
    {"int4", Layout::kCompressed, "4-bit codes"},
    {"int3", Layout::kGptq, "3-bit codes"},
    {"int2", Layout::kGptq, "2-bit codes"},
    {"w8a8", Layout::kCompressed, "8-bit weights per channel, activations per token"},
    {"w8a8-static", Layout::kCompressed, "the same with calibrated activation scales"},
    {"nf4", Layout::kBitsAndBytes, "quantiles of the normal distribution"},
    {"fp4", Layout::kBitsAndBytes, "4-bit floats"},
    {"fp8", Layout::kCompressed, "E4M3 per channel, activations per token"},
    {"ternary", Layout::kBitNet, "-1, 0 and 1 times one scale per matrix"},
};

struct Name {
  std::string_view name;
  int value;
};
constexpr Name kMethods[] = {{"rtn", 0}, {"gptq", 1}, {"awq", 2}, {"smoothquant", 3}};
constexpr Name kLayouts[] = {{"gptq", static_cast<int>(Layout::kGptq)},
                             {"awq", static_cast<int>(Layout::kAwq)},
                             {"compressed-tensors", static_cast<int>(Layout::kCompressed)},
                             {"bitsandbytes", static_cast<int>(Layout::kBitsAndBytes)},
                             {"bitnet", static_cast<int>(Layout::kBitNet)}};
constexpr Name kActOrders[] = {{"none", 0}, {"static", 1}, {"group", 2}};

Result<int> lookup(std::span<const Name> names, const std::string& name, const char* what) {
  std::string known;
  for (const Name& row : names) {
    if (row.name == name) return row.value;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return errorf(ErrorCode::kInvalidArgument, "{}: expected one of {}, got '{}'", what, known, name);
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

const TypeRow* find_type(std::string_view name) {
  const auto* row = std::ranges::find_if(kTypes, [&](const TypeRow& t) { return t.name == name; });
  return row == std::end(kTypes) ? nullptr : row;
}

bool is_plain(QuantType type) {
  return type == QuantType::kF32 || type == QuantType::kF16 || type == QuantType::kBF16;
}

// Returns the coding of a GGUF encoding with one scale per 32 weights, whose codes gptq can choose.
bool codes_of_block_type(QuantType type, GroupCoding& coding) {
  int bits = 0;
  if (type == QuantType::kQ4_0) bits = 4;
  if (type == QuantType::kQ5_0) bits = 5;
  if (type == QuantType::kQ8_0) bits = 8;
  if (bits == 0) return false;
  coding = {};
  coding.bits = bits;
  coding.group_size = 32;
  return true;
}

Status check_gguf(const Recipe& recipe, GroupCoding& coding) {
  if (recipe.method == Method::kSmoothQuant) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--method smoothquant: GGUF has no 8-bit activations; the output must be a "
                  "Hugging Face directory");
  }
  if (recipe.method != Method::kGptq || codes_of_block_type(recipe.ftype.base, coding)) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "--method gptq into GGUF: expected --type q4_0, q5_0 or q8_0, got '{}'",
                recipe.type);
}

Status set_group(const RecipeOptions& options, const GroupType& row, Recipe& recipe) {
  const int group = options.group_size >= 0 ? options.group_size : row.group_size;
  recipe.coding.group_size = group;
  if (row.whole_rows() && group != 0) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--type {}: expected --group-size 0 (whole rows), got {}", row.name, group);
  }
  if (recipe.layout == Layout::kBitsAndBytes &&
      (group < 32 || group > 4096 || (group & (group - 1)) != 0)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--type {}: expected --group-size 32 to 4096, a power of two, got {}", row.name,
                  group);
  }
  return {};
}

Status set_codes(const RecipeOptions& options, const GroupType& row, Recipe& recipe) {
  recipe.coding = coding_of(row);
  recipe.coding.symmetric = !options.asymmetric && recipe.layout != Layout::kAwq;
  if (recipe.layout == Layout::kGptq) recipe.coding.lowest_zero = 1;
  if (options.asymmetric && (!row.codebook.empty() || recipe.activations != Kind::kNone)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--type {}: has no zero points, --asymmetric does not apply", row.name);
  }
  return {};
}

Status check_layout(const TypeRow& type, const GroupType& row, const Recipe& recipe) {
  const bool integers = row.codebook.empty() && recipe.activations == Kind::kNone;
  bool fits = recipe.layout == type.layout;
  if (recipe.layout == Layout::kGptq || recipe.layout == Layout::kCompressed) fits |= integers;
  if (recipe.layout == Layout::kAwq) fits = integers && row.bits == 4;
  if (!fits) {
    return errorf(ErrorCode::kInvalidArgument, "--type {} does not fit this --layout", row.name);
  }
  if (recipe.method == Method::kSmoothQuant && recipe.activations == Kind::kNone) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--method smoothquant: expected --type w8a8 or w8a8-static, got {}", row.name);
  }
  if (recipe.method == Method::kGptq && row.codebook == "ternary") {
    return errorf(ErrorCode::kInvalidArgument,
                  "--method gptq: --type ternary is round-to-nearest only");
  }
  return {};
}

Status set_act_order(const RecipeOptions& options, Recipe& recipe) {
  const std::string name = options.act_order.empty() ? "static" : lower(options.act_order);
  ASSIGN_OR_RETURN(const int order, lookup(kActOrders, name, "--act-order"));
  recipe.act_order = static_cast<ActOrder>(order);
  if (recipe.act_order == ActOrder::kGroup && recipe.layout != Layout::kGptq) {
    return errorf(ErrorCode::kInvalidArgument, "--act-order group: only --layout gptq can say it");
  }
  return {};
}

}  // namespace

std::span<const TypeRow> quantize_types() { return kTypes; }

std::string Recipe::fingerprint() const {
  return fmt::format(
      "method {} layout {} type {} bits {} group {} symmetric {} order {} search {} clip {} "
      "damping {} smoothing {}",
      static_cast<int>(method), static_cast<int>(layout), type, coding.bits, coding.group_size,
      coding.symmetric, static_cast<int>(act_order), search, clip, damping, smoothing);
}

Result<Recipe> make_recipe(const RecipeOptions& options, Naming out) {
  Recipe recipe;
  recipe.type = lower(options.type);
  ASSIGN_OR_RETURN(const int method, lookup(kMethods, lower(options.method), "--method"));
  recipe.method = static_cast<Method>(method);
  recipe.search = options.search.value_or(recipe.method == Method::kAwq);
  recipe.clip = options.clip;
  recipe.damping = options.damping;
  recipe.smoothing = options.smoothing;
  const TypeRow* row = find_type(recipe.type);
  if (row == nullptr) {
    auto ftype = find_file_type(recipe.type);
    if (!ftype) {
      std::string names;
      for (const TypeRow& type : kTypes) names += std::string(type.name) + ", ";
      return errorf(ErrorCode::kInvalidArgument, "--type: expected one of {}{}, got '{}'", names,
                    file_type_names(), options.type);
    }
    recipe.ftype = *ftype;
    recipe.layout = out == Naming::kGguf ? Layout::kGguf : Layout::kPlain;
    if (out == Naming::kHuggingFace && !is_plain(recipe.ftype.base)) {
      return errorf(ErrorCode::kInvalidArgument,
                    "--type {} is an encoding of GGUF: the output must be a .gguf file, or the "
                    "type one of f32, f16, bf16, int4, int8, …",
                    recipe.type);
    }
    if (out == Naming::kHuggingFace && recipe.method != Method::kRtn) {
      return errorf(ErrorCode::kInvalidArgument,
                    "--method {}: --type {} has no codes to choose, only --method rtn applies",
                    lower(options.method), recipe.type);
    }
    if (out == Naming::kGguf) {
      RETURN_IF_ERROR(check_gguf(recipe, recipe.coding));
      if (quant_info(recipe.ftype.base).ggml_id < 0)
        return errorf(ErrorCode::kInvalidArgument, "--type {}: GGUF has no such encoding",
                      recipe.type);
    }
    if (recipe.method == Method::kGptq) RETURN_IF_ERROR(set_act_order(options, recipe));
    return recipe;
  }
  if (out == Naming::kGguf) {
    return errorf(ErrorCode::kInvalidArgument,
                  "--type {} is an encoding of Hugging Face checkpoints: the output must be a "
                  "directory, or the type one of q4_k_m, q8_0, q4_0, iq4_nl, tq2_0, …",
                  recipe.type);
  }
  const GroupType& type = *find_group_type(row->name);
  recipe.activations = type.activations;
  recipe.layout = row->layout;
  if (recipe.method == Method::kGptq && type.codebook.empty() && recipe.activations == Kind::kNone)
    recipe.layout = Layout::kGptq;
  if (recipe.method == Method::kAwq && type.bits == 4 && type.codebook.empty())
    recipe.layout = Layout::kAwq;
  if (!options.layout.empty()) {
    ASSIGN_OR_RETURN(const int layout, lookup(kLayouts, lower(options.layout), "--layout"));
    recipe.layout = static_cast<Layout>(layout);
  }
  RETURN_IF_ERROR(check_layout(*row, type, recipe));
  RETURN_IF_ERROR(set_codes(options, type, recipe));
  RETURN_IF_ERROR(set_group(options, type, recipe));
  if (recipe.method == Method::kGptq) RETURN_IF_ERROR(set_act_order(options, recipe));
  return recipe;
}

}  // namespace penstock
