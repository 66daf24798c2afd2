// The names of weights in files.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/text_hash.h"
#include "model/blocks/config.h"
#include "model/tensors/name_table.h"

namespace penstock {

NameTable tensor_names(const ModelConfig& config, Naming naming);
// Returns the name with {} replaced by the index or the letter.
std::string with_index(std::string_view pattern, int index);
// The prefix of a layer's tensors, and the name of one of them behind it.
std::string layer_prefix(const NameTable& names, int layer);
std::string in_layer(const NameTable& names, int layer, std::string_view part);
std::string with_letter(std::string_view pattern, char letter);
// Returns the name of the output matrix without ".weight", in a text model or inside a multimodal
// one; "" if a directory has none.
std::string_view output_stem(const WeightSource& source);
// Adapts names to the file: that of the output matrix (output_stem), a layer's experts in one
// tensor or one for each, dense feed-forwards (NameTable::other_gate); and the orientation of
// experts' matrices.
void choose_names(NameTable& names, const WeightSource& source, std::string_view prefix,
                  int n_layers);
// Whether files may have the tensor although no forward needs it: cached frequencies and masks.
bool is_ignorable_tensor(std::string_view name);
// Whether the tensor belongs to layers that predict further tokens, for formats that name these
// apart.
bool is_of_further_tokens(std::string_view name);
// Whether names of the text model's tensors may begin with it, in a checkpoint of the model or in one
// around it; names: of the same format.
bool is_text_prefix(std::string_view prefix, const NameTable& names);
// Whether the tensor belongs to another modality (images, sound). prefix: that of the text model;
// if it is nested in a larger model, everything without the prefix belongs to other modalities.
bool is_of_another_modality(std::string_view name, std::string_view prefix);
// Whether the tensor belongs to a prediction head, in a checkpoint of which only states are wanted.
bool is_of_a_head(std::string_view name);
// Whether the tensor belongs to a layer after the last one, which predicts a further token and is
// named like the others. layer: prefix of layers' tensors, with {} for the index.
bool is_of_later_layer(const ModelConfig& config, std::string_view layer, std::string_view name);
// Checks that every tensor is used or ignorable, so that a model that differs from its
// configuration is noticed. Errors: kUnsupported, with the first tensor that is neither.
Status check_unused(const WeightSource& source, const ModelConfig& config, std::string_view prefix,
                    std::string_view layer, const ViewSet& used);
// Names without ".weight" of the tensors of a layer that predicts one token further, and the prefix
// of its layer.
struct NextTokenStems {
  std::string layer, projection, embedding_norm, state_norm, final_norm, embedding, head;
};
// at: prefix of the layer of that index in the file. apart: prefix of its tensors in directories
// that store it apart (NameTable::next_token), or "".
// index: of the layer among those that predict further tokens.
NextTokenStems next_token_stems(Naming naming, const std::string& at, std::string_view apart,
                                int index);
// As the file has them.
NextTokenStems next_token_stems(const WeightSource& source, const std::string& at, int index);
// Prefixes under which directories may store such layers apart; the source decides.
inline constexpr std::string_view kNextTokenApart[] = {"mtp.", "model.mtp."};
std::string shown_shape(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace penstock
