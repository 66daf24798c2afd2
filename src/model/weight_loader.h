// Finds, checks and packs the weights of a model. Its matrices are in weight_matrices.cc, its layers in weights.cc.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/prequantized.h"
#include "model/cuts.h"
#include "model/weights.h"

namespace penstock {

// A matrix to pack: in the file, rewritten into `storage`, or as another quantizer stored it.
struct FileMatrix {
  QuantizedMatrix view;
  std::vector<std::byte> storage;
  std::optional<GroupedMatrix> grouped;  // then view is unused
  const TensorInfo* tensor = nullptr;
};

// Parts of things that are cut: of n features each, and of a vector.
inline Shard::Range times(Shard::Range range, int n) { return {range.first * n, range.count * n}; }
inline std::span<const float> part_of(const std::vector<float>& values, Shard::Range range) {
  return std::span(values).subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.count));
}

// What a matrix is for: tables are looked up, only projections are ternary in BitNet or transposed in GPT-2.
enum class WeightUse : uint8_t { kTable, kOutput, kProjection };

// Finds, checks and packs tensors: vectors, and matrices in every form that files hold them in.
class TensorLoader {
 public:
  TensorLoader(const WeightSource& source, const ModelConfig& config, Ops& ops,
               const Model::Progress& progress, PackedWeights* packed = nullptr,
               const ShardOptions& shard = {});

 protected:
  using Range = Shard::Range;

  const TensorInfo* find(const std::string& name) const { return source_.find(name); }
  // A matrix; one that was packed before is not looked up, for that may encode it.
  bool has_matrix(const std::string& name) const {
    if (restores()) return stored_.contains(name);
    if (find(name) != nullptr) return true;
    const std::string stem = name.substr(0, name.size() - std::string_view(".weight").size());
    return prequantized_ != nullptr &&
           (find(stem + ".qweight") != nullptr || find(stem + ".weight_packed") != nullptr);
  }
  bool restores() const { return packed_ != nullptr && packed_->from != nullptr; }
  static std::string stored_name(const std::string& name, int first_row) {
    return fmt::format("{}:{}", name, first_row);
  }
  Result<std::unique_ptr<Weight>> restore(const std::string& name, int first, int rows, int cols);
  // Of which this rank has some columns, behind `lead` others that share their block.
  Result<std::unique_ptr<Weight>> restore_columns(const std::string& name, int first, int rows, Range columns,
                                                  int& lead);
  void keep(const std::string& name, int first, const Weight& weight, int lead = 0) {
    if (packed_ == nullptr) return;
    const std::string behind = lead > 0 ? fmt::format("{}{}", kLeadMark, lead) : "";
    packed_->made.push_back({stored_name(name, first) + behind, &weight});
  }
  Result<const TensorInfo*> require(const std::string& name, std::span<const int64_t> shape);
  Status check_type(const TensorInfo& tensor) const;
  Result<std::vector<float>> vector(const std::string& name, int64_t size) {
    return vector(name, {&size, 1});
  }
  Result<std::vector<float>> vector(const std::string& name, std::span<const int64_t> shape);
  Result<std::vector<float>> optional_vector(const std::string& name, int64_t size);
  Status norm(const std::string& name, int64_t size, NormWeights& out);
  Status norm(const std::string& name, int64_t size, bool has_bias, NormWeights& out);
  Status head_norm(const std::string& pattern, int n_heads, Range part, NormWeights& out);
  Result<FileMatrix> matrix(const std::string& name, int rows, int cols, WeightUse use);
  Result<bool> find_prequantized(const std::string& stem, int rows, int cols, FileMatrix& out);
  Status unpack_ternary(const std::string& stem, int rows, int cols, FileMatrix& out);
  Status make_ternary(FileMatrix& out) const;
  Status order_rows(const std::string& stem, std::span<const int> order, FileMatrix& out) const;
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& view, const std::string& name);
  // Those of a matrix that is not restored.
  Result<std::unique_ptr<Weight>> pack_part(const FileMatrix& matrix, int first, int count,
                                            const std::string& name);
  Result<std::unique_ptr<Weight>> pack_rows(const FileMatrix& matrix, int first, int count,
                                            const std::string& name, int lead = 0);
  Result<std::unique_ptr<Weight>> weight(const std::string& name, int rows, int cols, WeightUse use) {
    return weight_rows(name, rows, cols, {0, rows}, use);
  }
  Status linear(const std::string& stem, int rows, int cols, LinearWeights& out) {
    return linear_rows(stem, rows, cols, {0, rows}, out);
  }
  // The same of a matrix of which this rank has some rows, or some columns.
  Result<std::unique_ptr<Weight>> weight_rows(const std::string& name, int rows, int cols, Range part,
                                              WeightUse use);
  Status linear_rows(const std::string& stem, int rows, int cols, Range part, LinearWeights& out);
  Status linear_columns(const std::string& stem, int rows, int cols, Range part, LinearWeights& out);
  // Rows `rows[i]` of what the matrix holds of out[i]; parts[i]: those of them that this rank has, empty = all.
  Status fused(const std::string& stem, std::span<const int> rows, int cols,
               std::span<LinearWeights* const> out, std::span<const int> order = {},
               std::span<const Range> parts = {});
  Result<int> narrow(const std::string& name, Range part, FileMatrix& m);
  void add_site(const std::string& stem, int matrix_rows, Range rows, int cols, std::span<const int> order,
                LinearWeights& out, int first_col = 0);
  void done(const TensorInfo& tensor);
  // About to be used, of a file of which this rank reads parts.
  void read_ahead(const ByteLines& part) const {
    if (reads_parts_) source_.read_ahead(part);
  }

  static constexpr char kLeadMark = '+';  // in a stored name, behind its first row
  struct PartWithLead {
    const PackedPart* part;
    int lead;
  };

  const WeightSource& source_;
  const ModelConfig& config_;  // of the whole model
  const ModelCuts cuts_;
  const Stage stage_;
  const bool cuts_vocabulary_;
  const bool reads_parts_;
  Ops& ops_;
  const Model::Progress& progress_;
  PackedWeights* packed_;
  std::unordered_set<std::string_view> stored_;  // the matrices in packed_->from, whatever rows of them
  std::unordered_map<std::string_view, PartWithLead>
      with_lead_;  // of packed_->from, by the name before the mark
  NameTable names_;
  std::unique_ptr<Prequantized> opened_;
  const Prequantized* prequantized_ = nullptr;  // null: layers are plain tensors
  std::string prefix_;
  std::unordered_set<std::string_view> used_;
  bool keeps_sites_ = false;       // what is loaded takes sites_ over at last
  std::vector<LinearSite> sites_;  // of the layers loaded so far
  int padding_ = 0;                // ModelWeights::padding so far
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

// Experts; in expert_weights.cc.
class ExpertLoader : protected TensorLoader {
 protected:
  using TensorLoader::TensorLoader;
  Status load_experts(const std::string& at, LayerWeights& layer);
  // One tensor for each expert or head, or one [count, rows, cols] for all.
  Status many_weights(const std::string& pattern, int count, int rows, int cols,
                      std::vector<std::unique_ptr<Weight>>& out);
  // Of each the same rows and columns, behind `lead` other columns.
  struct Part {
    Range rows, columns;
    int lead = 0;
    bool experts = false;  // they may be moved to a file
  };
  Status many_weights(const std::string& pattern, int count, int rows, int cols, Part& part,
                      std::vector<std::unique_ptr<Weight>>& out);
  // Of a matrix with `cols` inputs.
  Result<std::unique_ptr<Weight>> restore_part(const std::string& name, int first, int cols, Part& part) {
    if (part.columns.count == cols) return restore(name, first, part.rows.count, cols);
    return restore_columns(name, first, part.rows.count, part.columns, part.lead);
  }

 private:
  bool maps_experts() const { return packed_ != nullptr && packed_->maps_experts; }
  // Notes the weight under its name, in the place where it stays.
  Result<std::unique_ptr<Weight>> placed(std::unique_ptr<Weight> weight, const Part& part,
                                         const std::string& name, int first);
  // Up and gate projections, and down projections.
  Status expert_ups(const std::string& pattern, ExpertWeights& out);
  Status expert_downs(const std::string& pattern, ExpertWeights& out);
  Status expert_biases(const std::string& name, int rows, Range part,
                       std::vector<std::unique_ptr<Vector>>& out);
  using TensorLoader::add_site;
  void add_site(const std::string& at, ExpertProjection projection, ExpertWeights& out);
  struct FusedRows {
    int total;        // of an expert in the tensor
    int first, step;  // where a matrix begins in them, and how far its rows are apart
  };
  Status fused_experts(const std::string& name, const FusedRows& lie, int rows, int cols, Part& part,
                       std::vector<std::unique_ptr<Weight>>& out);
  Status fused_expert_biases(const std::string& gate_up, const std::string& down, LayerWeights& layer);
  bool has_fused_experts(const std::string& at) const;
  Status load_fused_experts(const std::string& at, LayerWeights& layer);
  Status load_shared_experts(const std::string& at, LayerWeights& layer);
};

// What stands in the place of attention; in short_conv.cc, delta_net.cc and state_space.cc.
class RecurrenceLoader : protected ExpertLoader {
 protected:
  using ExpertLoader::ExpertLoader;
  Status load_short_conv(const std::string& at, ShortConvWeights& out);
  Status load_delta_net(const std::string& at, DeltaNetWeights& out);
  Status load_state_space(const std::string& at, DeltaNetWeights& out);

 private:
  struct ConvPart {
    std::string name;
    int channels;
  };
  // own: those of the channels, in the order of the parts, that this rank has.
  Result<std::unique_ptr<Vector>> conv_weights(std::span<const ConvPart> parts, int taps,
                                               std::span<const Range> own);
  // Rows of this rank's heads: of queries or keys (or a scan's groups), and of values.
  Range own_keys() const { return times(cuts_.key_heads(), config_.delta.key_dim); }
  Range own_values() const { return times(cuts_.value_heads(), config_.delta.value_dim); }
  Result<std::vector<float>> delta_rates(const std::string& name);
  static Range behind(int n, Range range) { return {n + range.first, range.count}; }
  Status load_scan_projections(const std::string& stem, DeltaNetWeights& out);
  Status load_channels(const std::string& stem, DeltaNetWeights& out);
  Status load_delta_by_key(const std::string& at, DeltaNetWeights& out);
  Status load_delta_projections(const std::string& at, DeltaNetWeights& out);
};

// What is outside of the layers; in frame_weights.cc.
class FrameLoader : protected RecurrenceLoader {
 protected:
  using RecurrenceLoader::RecurrenceLoader;
  // Of a stage of a pipeline what it needs.
  Status load_frame(ModelWeights& weights, int max_seq_len);
  Status load_ropes(ModelWeights& weights, int max_seq_len);
  // Tensors whose names begin so are somebody else's.
  void pass_over(const std::string& stem);
  // And what the stages before and behind this one have, of which these layers are.
  void pass_over_other_stages(Range own);

 private:
  Status load_streams(ModelWeights& weights);
  Result<std::unique_ptr<Weight>> wave_table();
  Status load_per_layer_frame(PerLayerFrame& out);
  Status load_head(ModelWeights& weights);
  Status divide_by_factors(const std::string& name, std::vector<float>& frequencies);
};

// What a decoder is made of.
class WeightLoader : protected FrameLoader {
 public:
  using FrameLoader::FrameLoader;
  using FrameLoader::load_frame;
  Result<std::unique_ptr<ModelWeights>> load(int max_seq_len);
  // The layers of the configuration where the file has more: unused tensors are no error.
  Result<std::unique_ptr<ModelWeights>> load_some(int max_seq_len);
  Status open();  // before anything else
  Status load_layer(int i, LayerWeights& layer);
  // The layer that is the file's `layer`-th or has names of its own; the configuration is of one such layer. In
  // next_token_layer.cc.
  Status load_next_token(int layer, int max_seq_len, NextTokenWeights& out);

 protected:
  Status load_activation(int i, const std::string& at, LayerWeights& layer);
  Status load_feed_forward(int i, const std::string& at, LayerWeights& layer);

 private:
  Status load_layer_at(int i, const std::string& at, LayerWeights& layer);
  Result<std::unique_ptr<Weight>> own_table(const std::string& stem, const std::string& targets,
                                            WeightUse use);
  Range query_rows(int layer) const;
  Status load_qkv(int i, const std::string& at, LayerWeights& layer);
  Status load_qk_norms(int i, const std::string& at, LayerWeights& layer);
  void pass_over_shared(const std::string& at);
  Status load_layers(ModelWeights& weights);
  Status load_per_layer(const std::string& at, PerLayerWeights& out);
  Status load_altup(const std::string& at, AltUpWeights& out);
  Status load_beside(const std::string& at, BesideWeights& out);
  Status load_latent(const std::string& at, LayerWeights& layer);
  Status split_latent_b(const std::string& stem, LatentWeights& out);
  Result<std::unique_ptr<Weight>> transposed_rows(const FileMatrix& from, int first, int count,
                                                  const std::string& name);
  Status load_attention(int i, const std::string& at, LayerWeights& layer);
  Status load_ffn_norm(const std::string& name, LayerWeights& layer);
  Status load_dense(int i, const std::string& at, LayerWeights& layer);
  Status check_unused() const;
};

}  // namespace penstock
