// The names of weights in files.
#pragma once
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/blocks/config.h"
#include "model/tensors/name_table.h"

namespace penstock {

NameTable tensor_names(const ModelConfig& config, Naming naming);
// The name with the index, or the letter, in the place of {}.
std::string with_index(std::string_view pattern, int index);
std::string with_letter(std::string_view pattern, char letter);
// What the name of the output's matrix is without ".weight" and the like, in a text model or in one inside a multimodal model; "" where
// a directory has none.
std::string_view output_stem(const WeightSource& source);
// Where files differ, the names that this one has: the output's (output_stem), a layer's experts in one tensor or in one for each
// (NameTable::fused_expert_down), dense feed-forwards (NameTable::other_gate); and whether inputs of experts are before outputs.
void choose_names(NameTable& names, const WeightSource& source, std::string_view prefix, int n_layers);
// Tensors that files may have and no forward needs: cached frequencies and masks.
bool is_ignorable_tensor(std::string_view name);
// Of layers that predict further tokens, where they have names of their own.
bool is_of_further_tokens(std::string_view name);
// Of a checkpoint that sees or hears beside reading. `prefix`: what its text model's names begin with; where that is a part of the
// names of a larger model, all that does not belong to it is of other modalities.
bool is_of_another_modality(std::string_view name, std::string_view prefix);
// What makes predictions of states: of a checkpoint whose states are wanted alone.
bool is_of_a_head(std::string_view name);
// Of a layer behind the last one, which predicts a further token: checkpoints keep it under the same name. `layer`: what names
// of layers' tensors begin with, {} for the index.
bool is_of_later_layer(const ModelConfig& config, std::string_view layer, std::string_view name);
// Errors: kUnsupported with the first tensor that is neither used nor one that every reader passes over; so nothing of a
// model that is another than its configuration says goes unnoticed.
Status check_unused(const WeightSource& source, const ModelConfig& config, std::string_view prefix,
                    std::string_view layer, const std::unordered_set<std::string_view>& used);
// Whole names without ".weight" of what a layer that predicts a token further has, and what its own names begin with.
struct NextTokenStems {
  std::string layer, projection, embedding_norm, state_norm, final_norm, embedding, head;
};
// `at`: what names of the file's layer of that index begin with; `apart`: what its names begin with where directories have it apart
// from the others (NameTable::next_token), or "".
NextTokenStems next_token_stems(Naming naming, const std::string& at, std::string_view apart);
// Where directories may have it apart; the source decides.
inline constexpr std::string_view kNextTokenApart[] = {"mtp.", "model.mtp."};
std::string shown_shape(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace penstock
