// The visitor that loads a layer's tensors (tensors/specs.h).
#pragma once
#include "model/load/expert_loader.h"
#include "model/load/tensor_loader.h"

namespace penstock {

// Loads one layer. The first error is kept, and nothing is loaded after it.
class LayerLoader final : public TensorVisitor {
 public:
  // at: prefix of the layer's tensors. layer: its index in the configuration.
  LayerLoader(TensorLoader& tensors, std::string at, int layer)
      : tensors_(tensors), at_(std::move(at)), layer_(layer) {}
  const Status& status() const { return state_; }

  const ModelConfig& config() const override { return tensors_.config(); }
  const ModelCuts& cuts() const override { return tensors_.cuts(); }
  int layer() const override { return layer_; }
  void norm(const NormSpec& spec, NormWeights& out) override;
  void head_norm(const HeadNormSpec& spec, NormWeights& out) override;
  void linear(const LinearSpec& spec, LinearWeights& out) override;
  void joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) override;
  void vector(const VectorSpec& spec, std::unique_ptr<Vector>& out) override;
  void conv(const ConvSpec& spec, std::unique_ptr<Vector>& out,
            std::unique_ptr<Vector>* bias) override;
  void experts(const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
               ExpertWeights& down) override;
  void heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) override;
  void diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) override;
  void number(const TensorName* name, float& out) override;
  void activation(ActivationFunction& out) override;
  void shares(const SharesSpec& spec, std::unique_ptr<Vector>& kept,
              std::unique_ptr<Vector>& added) override;
  void token_shifts(const TokenShiftSpec& spec, std::span<std::unique_ptr<Vector>* const> mixtures,
                    std::unique_ptr<Vector>* shares) override;
  void affine(const AffineSpec& spec, std::span<std::unique_ptr<Vector>* const> scales,
              std::unique_ptr<Vector>& offset) override;
  void constants(std::vector<float> values, std::unique_ptr<Vector>& out) override;
  void table(const TableSpec& spec, RowTable& out) override;
  void values(const VectorSpec& spec, std::vector<float>& out) override;
  void unused(const TensorName* name) override {
    const std::string stem = at_ + std::string(tensors_.names()[*name]);
    tensors_.pass_over(stem + ".");
    if (tensors_.source().WeightSource::find(stem) != nullptr) tensors_.pass_over(stem);
  }

 private:
  using Range = Shard::Range;
  bool ok() const { return state_.has_value(); }
  // "": files of this format have no such tensor.
  std::string name_of(const TensorName* name) const;
  Status load_joined(const JoinedSpec& spec, std::span<const JoinedPart> parts);
  Status fuse(const std::string& stem, std::span<const JoinedPart> parts,
              std::span<const int> order);
  Result<std::vector<float>> numbers(const VectorSpec& spec, const std::string& name);
  Status load_vector(const VectorSpec& spec, std::unique_ptr<Vector>& out);
  Status load_turned(const LinearSpec& spec, const std::string& name, LinearWeights& out);
  Status finish_conv(const ConvSpec& spec, std::vector<float>& weight,
                     std::unique_ptr<Vector>& out);
  Status load_conv(const ConvSpec& spec, std::unique_ptr<Vector>& out,
                   std::unique_ptr<Vector>* bias);
  Result<std::vector<float>> channels(const ConvSpec& spec, const std::string& name,
                                      int n_channels);
  Status load_heads(const HeadsSpec& spec, ByHead& keys, ByHead& values);
  Status split_heads(const HeadsSpec& spec, ByHead& keys, ByHead& values);
  Status load_diagonal(const LinearSpec& spec, int n_blocks, ByHead& w);
  Status load_token_shifts(const TokenShiftSpec& spec,
                           std::span<std::unique_ptr<Vector>* const> mixtures,
                           std::unique_ptr<Vector>* shares);
  Status inputs_first(const LinearSpec& spec, const std::string& name, int n_blocks, ByHead& w);
  Result<std::vector<float>> with_leading(const std::string& name, int n, int size);
  Result<FileMatrix> taps_in_order(const LinearSpec& spec, const std::string& stem);
  Status load_shares(const SharesSpec& spec, std::unique_ptr<Vector>& kept,
                     std::unique_ptr<Vector>& added);
  Status load_affine(const AffineSpec& spec, std::span<std::unique_ptr<Vector>* const> scales,
                     std::unique_ptr<Vector>& offset);
  Status load_activation(ActivationFunction& out);
  Status load_table(const TableSpec& spec, RowTable& out);
  Status append_rows(const TensorInfo& tensor, int cols, RowTable& out);

  TensorLoader& tensors_;
  std::string at_;
  int layer_;
  Status state_;
};

}  // namespace penstock
