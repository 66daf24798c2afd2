// TensorVisitor and the specifications by which blocks describe their tensors to it.
//
// Every block has a function visit(TensorVisitor&, Weights&), which calls one of the visitor's
// functions exactly once for each tensor and passes the tensor's name, shape, cut and encoding
// rules. Code that needs all tensors of a model implements TensorVisitor and refers to no block:
// loading (load/layer_loader.h), counting bytes and parameters (counts.cc), random weights
// (sources/synthetic.cc), conversion (quantize/map/tensor_mapper.h).
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

// Role of a matrix, by which encodings are chosen together with its layer. kQkv: queries, keys and
// values fused. kLatent: projections to a latent and from it. kOther: roles that no rule names.
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

// Part of a matrix that one rank of several stores. A cut by rows gives some of the outputs; a cut
// by columns gives a partial sum of all outputs.
struct Cut {
  enum class Axis : uint8_t { kNone, kRows, kColumns };
  Axis axis = Axis::kNone;
  Shard::Range part = {0, 0};
};
inline Cut rows_of(Shard::Range part) { return {Cut::Axis::kRows, part}; }
inline Cut columns_of(Shard::Range part) { return {Cut::Axis::kColumns, part}; }
inline Shard::Range times(Shard::Range range, int n) { return {range.first * n, range.count * n}; }
inline Shard::Range behind(int n, Shard::Range range) { return {n + range.first, range.count}; }

// Source of a linear layer's input. Matrices of one site read the same activations.
enum class Site : uint8_t { kNone, kAttention, kAttentionOut, kFeedForward, kDown };

// Function of a tensor in its layer, for methods that change weights (AWQ, SmoothQuant, GPTQ).
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

// Norm weights [size], with a bias [size] in layer norms that have biases.
struct NormSpec {
  const TensorName* name;
  int size;
  Part part = Part::kOther;
};

// Norm weights [n_heads, head_dim], different for every head. Files hold one tensor, or one for
// each head.
struct HeadNormSpec {
  const TensorName* name;
  int n_heads;
  Shard::Range part;  // of the heads
};

// Range of rows (or columns) that consists of heads in groups. The range begins after `before`
// other rows and has `each` rows for every head; heads of a group are neighbours. GGUF files of
// some models store these heads strided (NameTable::groups_in_turn). each == 0: the matrix has no
// such range.
struct GroupedHeads {
  int before = 0, each = 0;
  int n_groups = 0, n_heads = 0;
};

// A factor for the outputs of the next `rows` rows.
struct RowFactor {
  int rows;
  float factor;
};

// Rows of heads of which the last `rotated` ones, after `plain` others, are rotated (RoPE). GGUF
// files store them as adjacent pairs. n_heads == 0: the matrix has no such rows.
struct RotatedTails {
  int n_heads = 0, plain = 0, rotated = 0;
};

// A linear layer: a matrix [rows, cols] = [outputs, inputs], and a bias [rows] if the file has one.
struct LinearSpec {
  const TensorName* name;
  WeightRole role;
  int rows, cols;
  Cut cut = {};
  Site site = Site::kNone;
  Part part = Part::kOther;
  GroupedHeads row_heads = {}, col_heads = {};
  RotatedTails tails = {};
  // Factors of inputs and of outputs with their biases. They are applied when the layer is
  // computed, and are folded into the weights of some files (Architecture::gguf_multiplied).
  // out_factors covers all rows in order; empty: factors of one.
  float in_factor = 1.0f;
  std::vector<RowFactor> out_factors = {};
  // In directories the name is whole: it has no ".weight".
  bool bare = false;
  // Stored [cols, rows]. The last `zeros` of the rows are in no file: they are zeros.
  bool turned = false;
  int zeros = 0;
  // > 1: inputs are those of so many tokens, one after the other; files store [rows, cols / taps,
  // taps]. Of diagonal() alone.
  int taps = 1;
  // Directories have the matrix, or each block of a diagonal(), as [inputs, outputs]; with `bare`.
  bool inputs_first = false;
  // Its bias is visited as a vector, under whose name GGUF files have what this matrix's bias is called.
  bool bias_apart = false;
};

// Linear layers with the same input that a file may store as one fused tensor, row after row. In a
// file that has both the fused tensor and separate ones, or neither, each layer is read by itself;
// layers without a name of their own exist in the fused tensor only.
inline constexpr const TensorName* kNoName = nullptr;
struct JoinedSpec {
  const TensorName* name;
  WeightRole role;
  // row r of all is row order[r] of the tensor; empty: r
  std::vector<int> order = {};
  Part part = Part::kOther;
  // If a file has tensors of both names, the first layer is read from its own tensor, not from the
  // fused one.
  bool alone_first = false;
  // Flag of the names that says that the layers are stored in reverse order; null: they never are.
  bool NameTable::* reversed = nullptr;
  // Flag of the names that says that rows of the layers alternate; null: they never do.
  bool NameTable::* alternating = nullptr;
  // Name of a tensor that fuses the first n_inner layers, in files that do not fuse all of them.
  const TensorName* inner = nullptr;
  int n_inner = 0;
  // Conversion to the other file format separates the layers where they may be separate.
  bool apart_across = false;
  RotatedTails tails = {};
};
struct JoinedPart {
  LinearSpec spec;
  LinearWeights* weights;
};

// A vector [size] with a whole name.
struct VectorSpec {
  const TensorName* name;
  int size;
  Shard::Range part;
  std::string_view suffix = "";  // appended to a name that lacks it
  // Shape in files, beside [size].
  enum class Shape : uint8_t { kLine, kRow, kMatrix, kDeepColumn, kDeepRow } shape = Shape::kLine;
  // kMatrix: [size / per_row, per_row]; kDeepColumn: [1, 1, size, 1], [size, 1] or
  // [size]; kRow: [1, size]; kDeepRow: [1, 1, size], with any number of ones.
  int per_row = 1;
  // Conversion of the stored numbers. kRate: GGUF files store the negative rate, Hugging Face
  // directories its logarithm; kPositiveRate: GGUF files store the rate. kIgnored: files have the
  // vector, which has no effect here; kZeros: likewise, and other numbers than 0 are refused. kIndices:
  // files store whole numbers below n_indices; kSquares, kMagnitudes: of the numbers divided by `divisor`.
  enum class Form : uint8_t {
    kPlain,
    kRate,
    kPositiveRate,
    kIgnored,
    kZeros,
    kIndices,
    kSquares,
    kMagnitudes
  } form = Form::kPlain;
  float divisor = 1.0f;
  // Files have the first `size - n_more` numbers; the others are `more`.
  int n_more = 0;
  float more = 0.0f;
  int n_indices = 0;
  bool is_bias = false;  // not counted by n_parameters()
  GroupedHeads heads = {};
  bool with_experts = false;  // is where the layer's experts are
  int repeats = 1;            // the loaded vector has each number so many times
};

// Two vectors that a file stores as one, of numbers g: added = sigmoid(g / temperature), kept =
// sqrt(max(1 - added^2, least)). The name is whole.
struct SharesSpec {
  const TensorName* name;
  int size;
  float temperature, least;
};

// Shares mu of the token before in mixtures mu x[t - 1] + (1 - mu) x[t], in one tensor of whole name or
// in several.
struct TokenShiftSpec {
  const TensorName* together;
  std::vector<const TensorName*> each;
  int size;
};

// The sum of functions scale_i * (x_i + offset_i), whose whole names these are, by column.
struct AffineSpec {
  struct Part {
    const TensorName *scale, *offset;
  };
  int size;
  std::vector<Part> parts;
};

// A depthwise convolution over the last `taps` tokens. Files store [channels, taps], in one tensor
// or in several after one another; the loaded vector is [taps, channels]. A bias [channels] is
// loaded if the file has one.
struct ConvSpec {
  const TensorName* name;
  // of every tensor; several: with a letter of `letters` in the name
  std::vector<int> channels;
  std::string_view letters;
  int taps;
  std::vector<Shard::Range> own;  // channels of this rank, in the order of all
  bool has_bias = false;          // published files have one
  GroupedHeads heads = {};
  // Tokens between taps; the loaded vector has zeros between them: [(taps - 1) * dilation + 1,
  // channels].
  int dilation = 1;
  // Added to the taps of the token itself; then all are multiplied by `factor`.
  float identity = 0.0f, factor = 1.0f;
  // Files store [taps, channels], the token itself first, by a whole name.
  bool by_lag = false;
};

// A table [rows, cols] of which a token reads n_read rows; files may have more rows. It is one
// tensor outside of the layers in GGUF files; in directories it is one of the layer, or several
// named shard_0, shard_1, ... It stays in its file.
struct TableSpec {
  const TensorName* name;
  int64_t rows;
  int cols;
  int n_read;
};

// Up and down projections of every expert, and gate projections of gated ones. is_shared: those of groups
// of experts, which have one tensor each, or one for all, and no adapters.
struct ExpertsSpec {
  const TensorName *gate, *up, *down;
  int n_experts;
  int width;  // features
  int dim;    // inputs and outputs of an expert
  bool gated;
  int n_active;  // experts that one token uses
  bool is_shared = false;
};

// Two matrices for each head: keys [kv_rank, plain_dim] and values [value_dim, kv_rank]. Files
// store one tensor of keys and one of values for all heads, or one matrix that has, for each head,
// plain_dim rows of keys (transposed) and then value_dim rows of values.
struct HeadsSpec {
  const TensorName *keys, *values, *both;
  int n_heads, kv_rank, plain_dim, value_dim;
  Shard::Range part;  // of the heads
};
using ByHead = std::vector<std::unique_ptr<Weight>>;

struct ModelConfig;
class ModelCuts;

// Receives every tensor of a layer or model. config() describes the whole model, cuts() the part of
// one rank. Blocks do not visit tensors that their layer does not have. A visitor that does not
// load leaves the weights it is given empty or unchanged.
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
  // bias: null for convolutions that never have one.
  virtual void conv(const ConvSpec& spec, std::unique_ptr<Vector>& w,
                    std::unique_ptr<Vector>* bias) = 0;
  virtual void experts(const ExpertsSpec& spec, ExpertWeights& gate, ExpertWeights& up,
                       ExpertWeights& down) = 0;
  virtual void heads(const HeadsSpec& spec, ByHead& keys, ByHead& values) = 0;
  virtual void number(const TensorName* name, float& w) = 0;
  virtual void table(const TableSpec& spec, RowTable& w) = 0;
  // Activation of the layer, as configured. Some activations have parameters in tensors (xIELU).
  virtual void activation(ActivationFunction&) {}
  // A block-diagonal matrix, stored as the rows of n_blocks equal matrices one after the other: each
  // reads a part of the input. The cut is by whole matrices. Those of this rank are loaded.
  virtual void diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) {
    (void)n_blocks, (void)w;
    LinearWeights whole;
    linear(spec, whole);
  }
  virtual void shares(const SharesSpec& spec, std::unique_ptr<Vector>& kept,
                      std::unique_ptr<Vector>& added) {
    (void)kept;
    vector({.name = spec.name, .size = spec.size, .part = {0, spec.size}}, added);
  }
  // mixtures [2, size]: convolutions that mix, one for each share; or, if it is not null, shares [n *
  // size]: the shares one after the other.
  virtual void token_shifts(const TokenShiftSpec& spec,
                            std::span<std::unique_ptr<Vector>* const> mixtures,
                            std::unique_ptr<Vector>* shares) {
    (void)mixtures;
    std::unique_ptr<Vector> none;
    const int n = static_cast<int>(spec.each.size()) * spec.size;
    vector({.name = spec.together, .size = n, .part = {0, n}}, shares == nullptr ? none : *shares);
  }
  // scales: one for each part. offset: the sum of scale_i * offset_i.
  virtual void affine(const AffineSpec& spec, std::span<std::unique_ptr<Vector>* const> scales,
                      std::unique_ptr<Vector>& offset) {
    for (size_t i = 0; i < spec.parts.size(); ++i) {
      const AffineSpec::Part& part = spec.parts[i];
      vector({.name = part.scale, .size = spec.size, .part = {0, spec.size}}, *scales[i]);
      vector({.name = part.offset, .size = spec.size, .part = {0, spec.size}, .is_bias = true},
             offset);
    }
  }
  // A vector of numbers that no file stores.
  virtual void constants(std::vector<float> /*values*/, std::unique_ptr<Vector>&) {}
  void ones(int size, std::unique_ptr<Vector>& w) {
    constants(std::vector<float>(static_cast<size_t>(size), 1.0f), w);
  }
  // A vector of few numbers that are used when the layer is loaded; of visitors that do not load it
  // stays empty.
  virtual void values(const VectorSpec& spec, std::vector<float>& w) {
    (void)w;
    std::unique_ptr<Vector> none;
    vector(spec, none);
  }
  // Prefix of tensors that files may contain and that nothing reads.
  virtual void unused(const TensorName*) {}
};

}  // namespace penstock
