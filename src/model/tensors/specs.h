// The words in which blocks name their tensors.
//
// A block has a function visit(TensorVisitor&, Weights&), which calls one of the visitor's functions for each of its tensors, once, with
// what there is to know of it. Whoever needs all tensors of a model is a visitor and knows no block: loading (load/layer_loader.h),
// counting bytes and parameters (counts.cc), random weights (sources/synthetic.cc), converting (quantize/map/tensor_mapper.h).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "model/tensors/name_table.h"
#include "model/tensors/weights.h"
#include "parallel/shard.h"

namespace penstock {

// What a matrix does; the rules are by role and layer. kQkv: all three in one; kLatent: to a latent, or from it; kOther: what
// the rules do not name.
enum class WeightRole : uint8_t {
  kEmbedding,
  kOutput,
  kQ,
  kK,
  kV,
  kQkv,
  kO,
  kGateUp,
  kDown,
  kRouter,
  kLatent,
  kOther
};

// Which part of a matrix one of several ranks has: some rows, or some columns, which give a share of a sum.
struct Cut {
  enum class Axis : uint8_t { kNone, kRows, kColumns };
  Axis axis = Axis::kNone;
  Shard::Range part = {0, 0};
};
inline Cut rows_of(Shard::Range part) { return {Cut::Axis::kRows, part}; }
inline Cut columns_of(Shard::Range part) { return {Cut::Axis::kColumns, part}; }
inline Shard::Range times(Shard::Range range, int n) { return {range.first * n, range.count * n}; }
inline Shard::Range behind(int n, Shard::Range range) { return {n + range.first, range.count}; }

// Where a linear layer's input comes from: matrices of one site read the same activations.
enum class Site : uint8_t { kNone, kAttention, kAttentionOut, kFeedForward, kDown };

// What a tensor of a layer is, as far as methods that change weights need to know.
enum class Part : uint8_t {
  kOther,
  kAttentionNorm,
  kQ,
  kK,
  kV,
  kQkv,  // all three, row after row
  kO,
  kFeedForwardNorm,
  kRouter,
  kGate,
  kUp,
  kGateUp,  // both, row after row
  kDown,
};

// [size] and, with layer norms that have them, biases.
struct NormSpec {
  const TensorName* name;
  int size;
  Part part = Part::kOther;
};

// [n_heads, head_dim], each head with its own weights: one tensor, or one for each.
struct HeadNormSpec {
  const TensorName* name;
  int n_heads;
  Shard::Range part;  // of the heads
};

// Rows (or columns) behind `before` others that are `each` of every head, whose neighbours are a group: GGUF files of some models have
// these heads in another order (NameTable::groups_in_turn). each 0: there are none.
struct GroupedHeads {
  int before = 0, each = 0;
  int n_groups = 0, n_heads = 0;
};

// Rows, one after the other, and what their products are multiplied by.
struct RowFactor {
  int rows;
  float factor;
};

// Rows of heads whose last `rotated` ones, behind `plain` others, are rotated: GGUF files have adjacent pairs. n_heads 0: there are
// none.
struct RotatedTails {
  int n_heads = 0, plain = 0, rotated = 0;
};

// [rows, cols] = [outputs, inputs], and a bias where the file has one.
struct LinearSpec {
  const TensorName* name;
  WeightRole role;
  int rows, cols;
  Cut cut = {};
  Site site = Site::kNone;
  Part part = Part::kOther;
  GroupedHeads row_heads = {}, col_heads = {};
  RotatedTails tails = {};
  // What is multiplied when it is computed, and lies in the weights of some files (Architecture::gguf_multiplied): inputs, and
  // outputs with their biases, of all rows one after the other; empty: none.
  float in_factor = 1.0f;
  std::vector<RowFactor> out_factors = {};
};

// Linear layers that read the same and may lie in one tensor, row after row. name: of that tensor. In a file that has both ways or none
// each is by itself; those without a name of their own are only there.
inline constexpr const TensorName* kNoName = nullptr;
struct JoinedSpec {
  const TensorName* name;
  WeightRole role;
  std::vector<int> order = {};  // row r of all is row order[r] of the tensor; empty: r
  Part part = Part::kOther;
  bool alone_first =
      false;  // where a file has tensors of both names, the first layer's own is meant, not the one of all
  bool NameTable::* reversed = nullptr;  // where it is true in the names, the layers lie in the other order
  // Where not all are in one tensor, the first n_inner are in one of this name.
  const TensorName* inner = nullptr;
  int n_inner = 0;
  bool apart_across = false;  // files of the other format have each by itself, where they may
  RotatedTails tails = {};
};
struct JoinedPart {
  LinearSpec spec;
  LinearWeights* weights;
};

// A vector by its whole name.
struct VectorSpec {
  const TensorName* name;
  int size;
  Shard::Range part;
  std::string_view suffix = "";  // ".weight" where the name is without
  // Beside [size] the shapes that files have for it.
  enum class Shape : uint8_t { kLine, kRow, kMatrix, kDeepColumn } shape = Shape::kLine;
  int per_row =
      1;  // kMatrix: [size / per_row, per_row]; kDeepColumn: [1, 1, size, 1] or [size, 1]; kRow: [1, size]
  // What becomes of the stored numbers. kRate: Hugging Face directories have the logarithm of what GGUF files have negated.
  // kIgnored: it is in files and has no effect here.
  enum class Form : uint8_t { kPlain, kRate, kIgnored } form = Form::kPlain;
  float divisor = 1.0f;
  bool is_bias = false;  // no parameter of n_parameters()
  GroupedHeads heads = {};
};

// A convolution by channel over the last tokens: files have [channels, taps], in one tensor or several after one another; it becomes
// [taps, channels], and a bias where the file has one.
struct ConvSpec {
  const TensorName* name;
  std::vector<int> channels;  // of every tensor; several: with a letter of `letters` in the name
  std::string_view letters;
  int taps;
  std::vector<Shard::Range> own;  // channels of this rank, in the order of all
  bool has_bias = false;          // published files have one
  GroupedHeads heads = {};
};

// Gate (where there is one), up and down projection of every expert.
struct ExpertsSpec {
  int n_experts;
  int width;  // features
  int dim;    // read and given
  bool gated;
  int n_active;  // of them for a token
};

// For each head a matrix of keys [kv_rank, plain_dim] and one of values [value_dim, kv_rank]: tensors of all heads, or in one
// matrix, of every head plain_dim rows (transposed) and then value_dim.
struct HeadsSpec {
  const TensorName *keys, *values, *both;
  int n_heads, kv_rank, plain_dim, value_dim;
  Shard::Range part;  // of the heads
};
using ByHead = std::vector<std::unique_ptr<Weight>>;

struct ModelConfig;
class ModelCuts;

// config() and cuts() are of the whole model, cuts() of one of several ranks. What a layer does not have is not visited. Weights of visitors
// that do not load are empty or left as they are.
class TensorVisitor {
 public:
  virtual ~TensorVisitor() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const ModelCuts& cuts() const = 0;
  virtual int layer() const = 0;

  virtual void norm(const NormSpec& spec, NormWeights& w) = 0;
  virtual void head_norm(const HeadNormSpec& spec, NormWeights& w) = 0;
  virtual void linear(const LinearSpec& spec, LinearWeights& w) = 0;
  virtual void joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) = 0;
  virtual void vector(const VectorSpec& spec, std::unique_ptr<Vector>& w) = 0;
  // bias: null where there never is one.
  virtual void conv(const ConvSpec& spec, std::unique_ptr<Vector>& w, std::unique_ptr<Vector>* bias) = 0;
  virtual void experts(const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
                       ExpertWeights& down) = 0;
  virtual void heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) = 0;
  virtual void number(const TensorName* name, float& w) = 0;
  // The layer's as configured; some have parameters in tensors.
  virtual void activation(ActivationFunction&) {}
  virtual void ones(int, std::unique_ptr<Vector>&) {}  // in no file
  // Files may have tensors whose names begin so, which nothing reads.
  virtual void unused(const TensorName*) {}
};

}  // namespace penstock
