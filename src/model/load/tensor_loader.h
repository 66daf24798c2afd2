// Finds, checks and packs tensors of one source: vectors, and matrices in every form that files
// store.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/text_hash.h"
#include "formats/prequantized.h"
#include "model/arch/names.h"
#include "model/blocks/cuts.h"
#include "model/load/file_matrix.h"
#include "model/load/load_weights.h"
#include "model/tensors/specs.h"

namespace penstock {

inline std::span<const float> part_of(const std::vector<float>& values, Shard::Range range) {
  return std::span(values).subspan(static_cast<size_t>(range.first),
                                   static_cast<size_t>(range.count));
}

// Use of a matrix. Rows of tables are looked up; only projections are ternary (BitNet) or
// transposed (GPT-2).
enum class WeightUse : uint8_t { kTable, kOutput, kProjection };

// Not thread-safe. Names are whole; a stem is a name without ".weight" and ".bias".
class TensorLoader {
 public:
  using Range = Shard::Range;

  TensorLoader(const WeightSource& source, const ModelConfig& config, Ops& ops,
               const LoadProgress& progress, PackedWeights* packed = nullptr,
               const ShardOptions& shard = {});
  Status open();  // REQUIRES: called first

  const WeightSource& source() const { return source_; }
  const ModelConfig& config() const { return config_; }  // of the whole model
  const ModelCuts& cuts() const { return cuts_; }
  // The backend that what is loaded now is for.
  Ops& ops() { return *ops_; }
  bool on_host() const { return ops_ != &device_; }
  bool host_computes(const Weight& weight) const {
    return on_host() && device_.host_computes(weight);
  }
  // While it lives, what is loaded is for the backend that computes the experts of this layer.
  class WithExperts {
   public:
    WithExperts(TensorLoader& tensors, int layer) : tensors_(tensors) {
      if (tensors.packed_ != nullptr && tensors.packed_->has_on_host(layer))
        tensors.ops_ = tensors.device_.host();
    }
    ~WithExperts() { tensors_.ops_ = &tensors_.device_; }
    WithExperts(const WithExperts&) = delete;
    WithExperts& operator=(const WithExperts&) = delete;

   private:
    TensorLoader& tensors_;
  };
  NameTable& names() { return names_; }
  // Returns the whole name of a tensor outside the layers.
  std::string name(std::string_view part) const { return prefix_ + std::string(part); }
  // Returns the prefix of a layer's tensors.
  std::string at_layer(int layer) const { return prefix_ + layer_prefix(names_, layer); }
  std::string layer_pattern() const { return prefix_ + std::string(names_.layer); }
  const ViewSet& used() const { return used_; }
  // Treats tensors with this prefix as used by other code.
  void pass_over(const std::string& stem);
  // Collects LinearSites, which the loaded weights take over at the end.
  void keep_sites() { keeps_sites_ = true; }
  std::vector<LinearSite>* sites() { return keeps_sites_ ? &sites_ : nullptr; }
  int padding() const { return padding_; }  // ModelWeights::padding so far
  void finish_progress() {
    if (restores() && progress_) progress_(total_bytes_, total_bytes_);
  }

  const TensorInfo* find(const std::string& name) const { return source_.find(name); }
  // Whether the source or the packed file has the matrix. A packed one is not looked up in the
  // source, since that may encode it.
  bool has_matrix(const std::string& name) const {
    if (restores()) return stored_.contains(name);
    if (find(name) != nullptr) return true;
    const std::string stem = name.substr(0, name.size() - std::string_view(".weight").size());
    return prequantized_ != nullptr &&
           (find(stem + ".qweight") != nullptr || find(stem + ".weight_packed") != nullptr);
  }
  bool restores() const { return packed_ != nullptr && packed_->from != nullptr; }
  Result<std::unique_ptr<Weight>> restore(const std::string& name, int first, int rows, int cols);
  // As restore(), for a rank that has some of the columns, after `lead` others of the same encoding
  // block.
  Result<std::unique_ptr<Weight>> restore_columns(const std::string& name, int first, int rows,
                                                  Range columns, int& lead);
  void keep(const std::string& name, int first, const Weight& weight, int lead = 0) {
    if (packed_ == nullptr) return;
    const std::string behind = lead > 0 ? fmt::format("{}{}", kLeadMark, lead) : "";
    packed_->made.push_back({stored_name(name, first) + behind, &weight, ops_});
  }
  bool maps_experts() const { return packed_ != nullptr && packed_->maps_experts; }
  ExpertFile* expert_file() { return packed_ == nullptr ? nullptr : packed_->experts; }

  Result<const TensorInfo*> require(const std::string& name, std::span<const int64_t> shape);
  Status check_type(const TensorInfo& tensor) const;
  Result<std::vector<float>> vector(const std::string& name, int64_t size) {
    return vector(name, {&size, 1});
  }
  Result<std::vector<float>> vector(const std::string& name, std::span<const int64_t> shape);
  // Reads whole numbers in [0, n).
  Result<std::vector<float>> indices(const std::string& name, std::span<const int64_t> shape,
                                     int n);
  Result<std::vector<float>> optional_vector(const std::string& name, int64_t size);
  Status norm(const std::string& name, int64_t size, NormWeights& out) {
    return norm(name, size, out, config_.norm.offset);
  }
  // offset: what is added to stored weights.
  Status norm(const std::string& name, int64_t size, NormWeights& out, float offset);
  Status norm(const std::string& name, int64_t size, bool has_bias, NormWeights& out);
  Status norm(const std::string& name, int64_t size, bool has_bias, NormWeights& out, float offset);
  struct Heads {
    int count;
    Range part;  // of this rank
  };
  // ending: of the names
  Status head_norm(const std::string& pattern, std::string_view ending, Heads heads,
                   NormWeights& out);
  Result<FileMatrix> matrix(const std::string& name, int rows, int cols, WeightUse use);
  Result<bool> find_prequantized(const std::string& stem, int rows, int cols, FileMatrix& out);
  bool may_be_prequantized() const { return prequantized_ != nullptr; }
  Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& view, const std::string& name);
  // Packing of matrices that are not restored.
  Result<std::unique_ptr<Weight>> pack_part(const FileMatrix& matrix, int first, int count,
                                            const std::string& name);
  Result<std::unique_ptr<Weight>> pack_rows(const FileMatrix& matrix, int first, int count,
                                            const std::string& name, int lead = 0);
  // Packs the transpose of rows [first, first + count). Plain numbers keep their type; codes become
  // F32.
  Result<std::unique_ptr<Weight>> transposed_rows(const FileMatrix& from, int first, int count,
                                                  const std::string& name);
  Result<std::unique_ptr<Weight>> weight(const std::string& name, int rows, int cols,
                                         WeightUse use) {
    return weight_rows(name, rows, cols, {0, rows}, use);
  }
  Status linear(const std::string& stem, int rows, int cols, LinearWeights& out) {
    return linear_rows(stem, rows, cols, {0, rows}, out);
  }
  // As weight() and linear(), for a rank that has some of the rows or columns.
  Result<std::unique_ptr<Weight>> weight_rows(const std::string& name, int rows, int cols,
                                              Range part, WeightUse use);
  Status linear_rows(const std::string& stem, int rows, int cols, Range part, LinearWeights& out);
  // order: index in the file of each column; empty: its own. Such layers take no adapters.
  Status linear_columns(const std::string& stem, int rows, int cols, Range part, LinearWeights& out,
                        std::span<const int> order = {});
  // As linear_rows(), for a matrix without bias whose whole name is given.
  Status bare_linear(const std::string& name, int rows, int cols, Range part, LinearWeights& out);
  // Splits a fused matrix: the next rows[i] rows are out[i], of which this rank has parts[i]; empty
  // parts: all.
  Status fused(const std::string& stem, std::span<const int> rows, int cols,
               std::span<LinearWeights* const> out, std::span<const int> order = {},
               std::span<const Range> parts = {});
  // Reduces the matrix to the columns of the encoding blocks that contain `part`. Returns how many
  // columns precede `part` in them.
  Result<int> narrow(const std::string& name, Range part, FileMatrix& m);
  void done(const TensorInfo& tensor);
  // Announces a read, for ranks that read parts of a file.
  void read_ahead(const ByteLines& part) const {
    if (reads_parts_) source_.read_ahead(part);
  }

 private:
  static std::string stored_name(const std::string& name, int first_row) {
    return fmt::format("{}:{}", name, first_row);
  }
  Status make_unit_rows(const std::string& stem, FileMatrix& m);
  Status unpack_ternary(const std::string& stem, int rows, int cols, FileMatrix& out);
  void order_columns(std::span<const int> order, FileMatrix& m) const;
  Status order_rows(const std::string& stem, std::span<const int> order, FileMatrix& out) const;
  void add_site(const std::string& stem, int matrix_rows, Range rows, int cols,
                std::span<const int> order, LinearWeights& out, int first_col = 0);

  static constexpr char kLeadMark = '+';  // in a stored name, after its first row
  struct PartWithLead {
    const PackedPart* part;
    int lead;
  };

  const WeightSource& source_;
  const ModelConfig& config_;
  const ModelCuts cuts_;
  const bool reads_parts_;
  Ops& device_;
  Ops* ops_;  // device_ or device_.host()
  const LoadProgress& progress_;
  PackedWeights* packed_;
  // matrices in packed_->from, independent of their rows
  ViewSet stored_;
  // Parts of packed_->from that have a lead, by the name without kLeadMark.
  ViewMap<PartWithLead> with_lead_;
  NameTable names_;
  std::unique_ptr<Prequantized> opened_;
  const Prequantized* prequantized_ = nullptr;  // null: layers are plain tensors
  std::string prefix_;
  ViewSet used_;
  bool keeps_sites_ = false;
  std::vector<LinearSite> sites_;  // of the layers loaded so far
  int padding_ = 0;
  int64_t done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace penstock
