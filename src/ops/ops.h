// The only place that knows a device: whole-batch operations on rank-2 tensors.
//
// A backend owns its weights, caches and the step's memory. A step: begin_step(batch), operations, submit(), wait().
// All calls come from one thread, in order, and take effect in that order; they may return before they have. What waits
// for that: wait(), read_rows(), and a cache's read_block() and write_block(). begin_step() ends the life of every tensor
// of the step before. Shapes are preconditions (checked in debug builds): a model validates its files before the first
// call. Activations are F32; a backend may round them inside an op.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/owned_bytes.h"
#include "base/result.h"
#include "cache/cache_spec.h"
#include "kernels/activation.h"
#include "kernels/sample_row.h"
#include "ops/batch.h"
#include "ops/limits.h"
#include "ops/tensor.h"
#include "parallel/shard.h"
#include "parallel/wire.h"
#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

// A weight matrix in the backend's own layout. Built by Ops::pack, used only with the backend that made it, or others of the same name
// that make_ops() gives (several engines share a model's weights).
class Weight {
 public:
  virtual ~Weight() = default;
  virtual int rows() const = 0;  // output features
  virtual int cols() const = 0;  // input features
  virtual int64_t packed_bytes() const = 0;
};

// A backend may leave packing to the first steps: after so many, every weight that all steps use is packed.
inline constexpr int kPackingSteps = 6;

// A vector that operations read beside their tensors: a norm's weights, biases, rope frequencies. Built by
// Ops::pack_vector, used as a Weight is.
class Vector {
 public:
  virtual ~Vector() = default;
  virtual int size() const = 0;
};

// A weight as it can be kept in a file: `description` is small, `bytes` are 64-byte aligned.
struct StoredWeight {
  std::string description;
  std::span<const std::byte> bytes;
};

// K and V of all layers, and states. Knows shapes, not who owns which block.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const CacheSpec& spec() const = 0;
  virtual int n_blocks(int group) const = 0;
  // Content of one block in all layers of its group, in a form that only the same kind of cache reads back. Between steps.
  virtual int64_t block_bytes(int group) const = 0;
  virtual void read_block(int group, BlockId block, std::span<std::byte> out) const = 0;
  virtual void write_block(int group, BlockId block, std::span<const std::byte> bytes) = 0;
};

struct NormParams {
  const Vector* weight = nullptr;  // [cols], null = ones; or [g, cols]: row r has the weights r % g
  const Vector* bias = nullptr;    // [cols], null = zeros; only with layer norm
  float eps = 1e-5f;
  bool layer_norm = false;  // subtract the mean (layer norm); otherwise RMS norm
};

// What products read: norm(x), or x itself. A backend computes the norm where it suits, when x is complete or within the
// products; until then `values` are its own.
struct NormedInput {
  Tensor x;
  std::optional<NormParams> norm;  // none: x as it is, and values is x
  Tensor values;                   // as x
};

// What a LoRA adapter adds to a product x weight^T: (x a^T) b^T. Its scale is in b.
struct AdapterTerm {
  const Weight* a = nullptr;  // [rank, in]; null: the adapter leaves this product as it is
  const Weight* b = nullptr;  // [out, rank]
};
using AdapterTerms =
    std::vector<AdapterTerm>;  // by slot; an adapter beyond its end leaves the product as it is

struct LinearTarget {
  const Weight* weight;                    // [out, in]
  const Vector* bias;                      // [out] or null
  Tensor out;                              // [n_tokens, out]
  const AdapterTerms* adapters = nullptr;  // of the tokens' sequences (Batch::adapters); null: none adds here
  bool partial =
      false;  // the weight is this rank's share of the inputs: the product is the sum over all ranks
};

// Angles are precomputed per dimension pair; cos and sin are multiplied by `scale` (YaRN, longrope).
struct RopeParams {
  const Vector* inv_freq = nullptr;  // [rotary_dim / 2]
  float scale = 1.0f;
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  int first = 0;             // feature of a head with which the rotated ones begin
  // [rotary_dim / 2] longrope: those of sequences that Batch::long_ropes marks; null: all have inv_freq
  const Vector* long_inv_freq = nullptr;
};

struct AttentionParams {
  int layer = 0;
  int n_heads = 0;       // query heads; K and V heads are in the cache spec
  float scale = 1.0f;    // multiplies q.k
  float softcap = 0.0f;  // 0 = off; cap * tanh(score / cap)
  // [n_heads] or null. A head's sink is a score beside those of its tokens, of a token without a value.
  const Vector* sinks = nullptr;
  // [n_heads] or null (ALiBi): slope * (key's position - query's position) is added to every score.
  const Vector* slopes = nullptr;
};

// A convolution over each sequence's tokens, every channel by itself.
struct ConvParams {
  const Vector* weight = nullptr;  // [taps, channels]; the last one is of the token itself
  const Vector* bias = nullptr;    // [channels] or null
  int taps = 0;
  int layer = 0;
  int64_t state_offset =
      0;  // in the layer's state: where the inputs of the taps - 1 tokens before are, [taps - 1, channels]
};

// The gated delta rule. Of every sequence each value head keeps a state S [key_dim, value_dim], zeros before the first
// token. With q and k of its key head at unit length, q divided by sqrt(key_dim), for every token
//   S = decay S;  S += k (sigmoid(b) (v - S^T k))^T;  out = S^T q;  decay = exp(rate softplus(a + bias)),
// which is a number, or one for each row of S.
struct DeltaParams {
  const Vector* rate = nullptr;  // [n_value_heads]
  const Vector* bias = nullptr;  // [n_value_heads * decays_per_head()]
  int n_key_heads = 0, n_value_heads = 0, key_dim = 0, value_dim = 0;
  bool key_heads_in_turn =
      false;  // value head h has key head h % n_key_heads, otherwise as many neighbours have one
  bool decay_by_key = false;
  int layer = 0;
  int64_t state_offset =
      0;  // in the layer's state: where state_values() values are, as the backend lays them out

  int decays_per_head() const { return decay_by_key ? key_dim : 1; }

  // Space for features in whole groups of so many, for backends that compute with vectors.
  static constexpr int kFeatureGroup = 16;
  static int64_t state_values(int n_value_heads, int key_dim, int value_dim) {
    const int64_t groups = (value_dim + kFeatureGroup - 1) / kFeatureGroup;
    return groups * kFeatureGroup * n_value_heads * key_dim;
  }
};

// A scan of Mamba 2. Of every sequence each head keeps a state S [state_dim, head_dim], zeros before the first token. With B
// and C of its group, for every token
//   step = clamp(softplus(dt + bias));  S = exp(rate step) S + B (step x)^T;  out = S^T C + skip x.
struct StateSpaceParams {
  const Vector* rate = nullptr;                                // [n_heads]
  const Vector* bias = nullptr;                                // [n_heads]
  const Vector* skip = nullptr;                                // [n_heads]
  int n_groups = 0, n_heads = 0, state_dim = 0, head_dim = 0;  // as many neighbouring heads have one group
  float min_step = 0.0f, max_step = 0.0f;
  int layer = 0;
  int64_t state_offset = 0;  // as DeltaParams, whose state_values(n_heads, state_dim, head_dim) it has
};

// x of the token at position p is multiplied by 1 + beta * log(1 + floor((p + offset) / period)).
struct PositionScale {
  float beta = 0.0f;  // 0 = no scaling
  float period = 1.0f;
  int offset = 0;
};

inline constexpr int kMaxExpertGroups = 64;
enum class RouterScore : uint8_t {
  kSoftmax,      // of the logits of all experts
  kSigmoid,      // of each
  kSparseMixer,  // softmax of those that are still to choose from and near the best (ExpertRouting::jitter)
};

// Which experts a token takes and what they weigh. Ties: the lower index.
struct ExpertRouting {
  int n_active = 2;
  RouterScore score = RouterScore::kSoftmax;
  // With several groups of equally many experts those of the best groups come first. A group is as good as its best
  // score, or (group_top 2) its two best together.
  int n_groups = 1, n_active_groups = 1, group_top = 1;  // n_groups at most kMaxExpertGroups
  bool normalize = true;  // the weights are divided by their sum + sum_eps, or by sum_min where that is more
  float sum_eps = 0.0f, sum_min = 0.0f;
  // SparseMixer: near is (best - logit) / max(|logit|, best) <= 2 * jitter.
  float jitter = 0.0f;
  float scale = 1.0f;        // of the weights, at last
  bool weigh_input = false;  // the weight multiplies what the expert reads, not what it gives
  bool operator==(const ExpertRouting&) const = default;
};

struct MoeParams {
  // One per expert: down(act(gate x) * up x), or without gates down(act(up x)).
  std::span<const std::unique_ptr<Weight>> gate, up, down;
  std::span<const std::unique_ptr<Vector>> gate_bias, up_bias, down_bias;  // the same, or empty
  // The same, or empty: what the adapters of the tokens' sequences add.
  std::span<const AdapterTerms> gate_adapters, up_adapters, down_adapters;
  ExpertRouting routing;
  const Vector* selection_bias =
      nullptr;  // [n_experts] or null: added to the scores when choosing, not when weighing
  const Vector* expert_scale = nullptr;  // [n_experts] or null: multiplies the weights at last
  ActivationFunction activation;
  // Of a rank with a share of every expert's width: inputs of down before those of its own, which are zeros.
  int down_lead = 0;
  bool mapped = false;  // they lie in a mapped file, of which some may not be in memory
};

// Rows of a step's tensors: as many as the batch has, or more where a backend computes in fixed sizes. Nobody reads
// what the rows beyond hold; their K and V go into a spare block of the cache.
struct StepShape {
  int tokens = 0;   // a row per token
  int outputs = 0;  // a row per output row of the batch
  bool operator==(const StepShape&) const = default;
};

// What a model's step leaves behind: a row for each output row of the batch, and perhaps more (StepShape).
struct StepOutputs {
  Tensor logits;  // [rows, vocab_size]; empty when not wanted
  Tensor hidden;  // [rows, model_dim], after the final norm
  Tensor
      states;  // [n_tokens, model_dim], the same of every token, or what ForwardOptions::taps says; empty when not wanted
  Tensor
      stream;  // [n_tokens, ModelConfig::stage_dim()] of a stage of a pipeline that is not the last, and then nothing else
};

// Names what a step computes: steps with equal keys are the same operations, in the same order, with the same
// parameters; only what their batches hold differs.
struct StepKey {
  const void* model = nullptr;
  const KvCache* cache = nullptr;
  StepShape shape;
  int n_layers = 0;
  bool logits = true, states = false;
  const int* taps = nullptr;
  bool adapters = false;  // some sequences have one
  bool operator==(const StepKey&) const = default;
};

using StepTicket = uint64_t;

struct MemoryState {
  int64_t total = 0, free = 0;  // bytes; free: what this process may still take
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual const char* name() const = 0;  // "cpu/avx512"
  // Whether the thread that calls computes too: then its own time is what operations cost.
  virtual bool computes_here() const { return false; }
  // Of the memory that weights and caches are in.
  virtual MemoryState memory() const = 0;
  // Error: the device is lost, or (kResourceExhausted) it has refused memory that a step needs. Nothing is computed from then on,
  // what is read is zeros.
  virtual Status status() const { return {}; }
  // After memory was refused: things are computed again, with as much memory as before free; what the steps since then gave is
  // worth nothing. False: the device is lost. REQUIRES: all steps were waited for.
  virtual bool recover() { return status().has_value(); }
  virtual bool can_cache(KvDType dtype) const { return dtype != KvDType::kF8; }
  // read_bytes: of memory that is read again and again; 0 is as much as caches never hold. What a model reads for a
  // token shows what caches do for it. Takes about half a second, and 512 MiB at most. The best of several rounds: too
  // low beside other load.
  virtual MachineLimits limits(int64_t read_bytes) = 0;

  // --- Loading -------------------------------------------------------------------------------------------------
  // Copies the matrix into the backend's layout (or keeps a view of it where that layout is as fast).
  virtual Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) = 0;
  // Rows [first_row, first_row + n_rows) of a matrix that GroupedMatrix::check accepts. Its activation coding tells
  // how linear() rounds the activations.
  virtual Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                                       int n_rows) = 0;
  // Error: kResourceExhausted.
  virtual Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) = 0;
  // Names the form of stored weights, so that what was stored in another one is not taken for it; "" = this backend
  // stores none.
  virtual std::string stored_form() const { return {}; }
  // A weight as it is stored: its description, and its packed_bytes() bytes, which are its own or a copy of them.
  // REQUIRES: this backend stores weights.
  virtual std::string describe(const Weight& weight) const {
    (void)weight;
    return {};
  }
  virtual OwnedBytes store(const Weight& weight) const {
    (void)weight;
    return {};
  }
  // The inverse: uses the bytes in place, which `owner` keeps valid. Error: kCorruptFile for what is no stored weight
  // (the numbers inside are taken as they are).
  virtual Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored,
                                                  std::shared_ptr<const void> owner) {
    (void)stored, (void)owner;
    return make_error(ErrorCode::kUnsupported, "this backend stores no weights");
  }
  // Whether it does, instead of copying: then weights need not be in memory, but may lie in a mapped file.
  virtual bool restores_in_place() const { return false; }
  // Bytes of experts in a mapped file (MoeParams::mapped) that were not in memory when they were chosen, so far. Any thread.
  virtual int64_t expert_bytes_read() const { return 0; }
  // n_blocks[g] blocks for cache group g. Error: kResourceExhausted, with both sizes.
  virtual Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                                      std::span<const int> n_blocks) = 0;

  // Host threads of this backend, and fn(ctx, item, thread) for every item in [0, n_items) spread over them. For work on
  // the host between two operations; fn must not throw or call the backend.
  virtual int n_host_threads() const { return 1; }
  virtual void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) {
    for (int i = 0; i < n_items; ++i) fn(ctx, i, 0);
  }

  // --- A step --------------------------------------------------------------------------------------------------
  // Begins a step over `batch`, which its operations read (null: over tensors alone), and ends the life of the tensors
  // of the step before. The batch's arrays stay as they are until submit() returns.
  virtual StepShape begin_step(const Batch* batch) = 0;
  // The operations of a step, as fn asks for them. A backend may record them and, in a later step with the same key,
  // do what it recorded without calling fn; the outputs lie where they lay then. fn asks for operations and tensors
  // only, by what the key says alone.
  template <class Fn>
  StepOutputs run(const StepKey& key, Fn&& fn) {
    return run_step(key, [](void* ctx) { return (*static_cast<std::remove_reference_t<Fn>*>(ctx))(); }, &fn);
  }
  // Ends the step, which may go on while the host does something else. Its tensors can still be read.
  virtual StepTicket submit() { return 0; }
  // Returns when that step and all before it are done.
  virtual void wait(StepTicket ticket) { (void)ticket; }
  // Uninitialized, valid until the next begin_step. F32, unless the backend keeps tensors of this role otherwise.
  virtual Tensor new_tensor(int rows, int cols, TensorRole role = TensorRole::kActivation) = 0;

  // All rows of x as F32, one after the other; after everything that was asked for before. Waits.
  virtual void read_rows(Tensor x, std::span<float> out) = 0;
  // The inverse: x's first rows = values, whole rows; the others are 0.
  virtual void write_rows(std::span<const float> values, Tensor x) = 0;
  // The first row of a tensor that the host may read and change where it is (F32, row_stride apart); null where
  // tensors lie elsewhere. HostRows (host_rows.h) serves both.
  virtual float* in_place(Tensor x) {
    (void)x;
    return nullptr;
  }

  // out[t] = table[token t] * scale; tokens beyond the table have its first row.
  virtual void embed_tokens(const Weight& table, float scale, Tensor out) = 0;
  // The same of a rank whose table has the rows from `first` on: zeros for tokens that it has not. The sum over all ranks is
  // what the whole table gives.
  virtual void embed_share(const Weight& table, int first, float scale, Tensor out) = 0;
  // out[t] += table[position of token t].
  virtual void embed_positions(const Weight& table, Tensor out) = 0;
  // out[t] += table[type of token t].
  virtual void embed_token_types(const Weight& table, Tensor out) = 0;
  // out[i] = x[output_rows[i]].
  virtual void gather_outputs(Tensor x, Tensor out) = 0;
  virtual void norm(Tensor x, const NormParams& params, Tensor out) = 0;  // out may be x
  // x += delta * delta_scale; out = norm(x).
  virtual void add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params, Tensor out) = 0;
  virtual void add(Tensor x, Tensor delta, float delta_scale) = 0;  // x += delta * delta_scale
  virtual void scale(Tensor x, float factor,
                     float softcap) = 0;  // x *= factor; then cap * tanh(x / cap) if cap > 0
  // targets[i].out = x weight_i^T + bias_i, and what the tokens' adapters add; the targets share x, so it is quantized once.
  virtual void linear(Tensor x, std::span<const LinearTarget> targets) = 0;
  // Row r of out is row r of x times the transpose of weights[r % n], n of them: heads of tokens as rows.
  virtual void linear_by_head(Tensor x, std::span<const std::unique_ptr<Weight>> weights, Tensor out) {
    const int n = static_cast<int>(weights.size());
    for (int h = 0; h < n; ++h) {
      const LinearTarget target{weights[static_cast<size_t>(h)].get(), nullptr, out.every(h, n)};
      linear(x.every(h, n), {&target, 1});
    }
  }
  virtual void copy(Tensor from, Tensor to) = 0;  // to = from
  virtual void clear(Tensor x) = 0;               // x = 0
  // Rounds each row to 8 bits: x = round(x * 127 / m) * m / 127, m = max(|row|, 1e-5), halves to even (BitNet).
  virtual void round_int8(Tensor x) = 0;
  virtual void activate(Tensor x, const ActivationFunction& f) = 0;  // x = f(x)
  virtual void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f,
                            Tensor out) = 0;  // out = f(gate) * up
  // x[t] *= sigmoid(gate[t]); gate: [n_tokens, 1].
  virtual void gate_rows(Tensor x, Tensor gate) = 0;
  virtual void multiply(Tensor x, Tensor by) = 0;              // x *= by, element by element
  virtual void scale_columns(Tensor x, const Vector& by) = 0;  // x[t] *= by
  // Of n streams side by side in `from` and m in `to`, all `width` wide: stream q of to[t] += the sum over p of by[t, q * n + p] *
  // stream p of from[t]. from: [n_tokens, n * width], to: [n_tokens, m * width], by: [n_tokens, m * n].
  virtual void add_mixed(Tensor from, Tensor by, int width, Tensor to) = 0;
  // x[t] *= sqrt(mean(like[t]^2) / max(mean(x[t]^2), least)).
  virtual void match_magnitude(Tensor x, Tensor like, float least) = 0;
  // x[t] = max(x[t] - mean - deviations * standard deviation, 0), mean and deviation over x[t] (Gemma 3n's sparse
  // activations).
  virtual void keep_above(Tensor x, float deviations) = 0;
  virtual void scale_by_position(Tensor x, const PositionScale& scale) = 0;
  // out = sum over the chosen experts of weight * down(f(gate(x)) * up(x)); router_logits: [n_tokens, n_experts].
  virtual void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) = 0;
  // --- Parts of a layer: the operations above in a row, which a backend may do in one.

  // x is complete: h may be read by what follows.
  virtual void prepare(const NormedInput& h) {
    if (h.norm) norm(h.x, *h.norm, h.values);
  }
  // norm(x) as a tensor.
  virtual Tensor materialize(const NormedInput& h) { return h.values; }
  // targets[i].out = h weight_i^T + bias_i.
  virtual void norm_linear(const NormedInput& h, std::span<const LinearTarget> targets) {
    linear(h.values, targets);
  }
  // out = f(h gate^T) * (h up^T); the targets' own tensors are scratch, and `out` may be the gate's.
  virtual void gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                            const ActivationFunction& f, Tensor out) {
    const LinearTarget both[] = {gate, up};
    linear(h.values, both);
    activate_mul(gate.out, up.out, f, out);
  }
  // x += delta * delta_scale; then h, which is of x, is prepared (null: nobody reads x yet).
  virtual void add_whole(Tensor x, Tensor delta, float delta_scale, const NormedInput* h) {
    if (h != nullptr && h->norm) return add_norm(x, delta, delta_scale, *h->norm, h->values);
    add(x, delta, delta_scale);
  }
  // The same for the sum of all ranks' delta, which is overwritten.
  virtual void add_shares(Tensor x, Tensor delta, float delta_scale, const NormedInput* h) {
    all_reduce(delta);
    add_whole(x, delta, delta_scale, h);
  }
  // The same for delta = in weight^T + bias, whole or partial; the target's own tensor is scratch.
  virtual void linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale,
                          const NormedInput* h) {
    linear(in, {&target, 1});
    if (target.partial) return add_shares(x, target.out, delta_scale, h);
    add_whole(x, target.out, delta_scale, h);
  }

  // --- Several ranks, each with its share of the weights (OpsConfig::ranks). All ask for the same of these operations; when
  // they return after the run has failed (Communicator::status()), x holds anything.
  virtual Shard shard() const { return {}; }
  // x = the sum of all ranks' x, the same bits on every rank.
  virtual void all_reduce(Tensor x) { (void)x; }
  // Every rank has its own columns of x, shard().range(x.cols), and gets the others'.
  virtual void all_gather(Tensor x) { (void)x; }
  // The same of the step's logits: of the most likely ones only where that is all that is wanted (Batch::row_tops).
  virtual void gather_logits(Tensor x) { all_gather(x); }

  // Rotates q and k in place, for models that do something to them before they are stored.
  virtual void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) = 0;
  // Rotates q and k in place (rope may be null: learned positions) and stores k and v of every token in the cache.
  // Where the layer's values are in its keys, v is Tensor().
  virtual void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                              int layer) = 0;
  // Causal (or tree-masked) attention of q over each sequence's cached tokens, within the layer's window.
  // q: [tokens, n_heads * head_dim], out: [tokens, n_heads * the layer's value_dim()].
  virtual void attend(Tensor q, const KvCache& cache, const AttentionParams& params, Tensor out) = 0;
  // rope_and_store() into the layer that is then attended to, and attend(), which a backend may do in one: q and k are scratch
  // behind it. Where an earlier layer's keys and values are attended to, k and v are Tensor().
  virtual void store_and_attend(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                                const AttentionParams& params, Tensor out) {
    if (k.cols > 0) {
      rope_and_store(q, k, v, rope, cache, params.layer);
    } else if (rope != nullptr) {
      rotate(q, k, *rope, cache.spec().layers[static_cast<size_t>(params.layer)].head_dim);
    }
    attend(q, cache, params, out);
  }
  // out[t] = bias + the sum over taps k of weight[k] * x[t - taps + 1 + k]: what came before the step's tokens is in the
  // sequence's state, which then holds the step's last ones. Before a sequence's first token there are zeros.
  virtual void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) = 0;
  // out[t] = what the tokens up to t have left for its queries (DeltaParams), by value head. qkv: [tokens, (2 * n_key_heads
  // * key_dim + n_value_heads * value_dim)], queries of all heads first; a: [tokens, n_value_heads * decays_per_head()], b:
  // [tokens, n_value_heads]. All three are overwritten.
  virtual void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params, KvCache& cache,
                           Tensor out) = 0;
  // out[t] = what the tokens up to t have left for its C (StateSpaceParams), by head. x: [tokens, n_heads * head_dim + 2 * n_groups
  // * state_dim], then B, then C of all groups; dt: [tokens, n_heads], overwritten like `scratch` of the same shape.
  virtual void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                           KvCache& cache, Tensor out) = 0;
  // Whether sample() draws here; else whoever wants draws makes them on the host.
  virtual bool samples() const { return false; }
  // results[i] is what Sampler::draw (sampling/sampler.h) makes of rows[i] and its row of `logits`, which stays as it is.
  // Before or after submit(), as long as the tensor lives. `rows` are read before this returns, what they point to and
  // `results` belong to the backend until the step's wait(). A draw that is left to the host says so.
  virtual void sample(Tensor logits, std::span<const SampleRow> rows, std::span<SampleResult> results) {
    (void)logits, (void)rows, (void)results;
  }
  // Copies K and V of all layers of a group from slot to slot (accepted tree paths, copy-on-write); of a group of states
  // from block to block.
  virtual void move_kv(KvCache& cache, int group, std::span<const int32_t> from,
                       std::span<const int32_t> to) = 0;

 protected:
  using StepFn = StepOutputs (*)(void* ctx);
  virtual StepOutputs run_step(const StepKey& key, StepFn fn, void* ctx) {
    (void)key;
    return fn(ctx);
  }
};

class Communicator;  // parallel/communicator.h

struct OpsConfig {
  int n_threads = 0;             // 0 = as many as the process may use
  bool batch_invariant = false;  // one kernel family and summation order whatever the batch
  double thread_weight = 1;      // > 0: share of the threads beside other models of the process
  int row_multiple = 1;          // cpu: a step's tensors have a multiple of so many rows (tests of StepShape)
  std::vector<int> cpus = {};    // cpu: where its threads stay; the caller's own place is its business
  Communicator* ranks =
      nullptr;  // those that share a model's weights, which outlive the backend; null: it is alone
  WireType rank_wire = WireType::kF32;  // of their sums
  bool eager = false;                   // no step is recorded and played again
};

// A row of THE list of backends (backends.cc), as choose_backend() names it.
Result<std::unique_ptr<Ops>> make_ops(std::string_view name, const OpsConfig& config);
std::string backend_names();  // "cpu, …"
// Of "auto" (or ""): the best backend that is here and computes what the CPU computes (self_test.h); the log says once why it is
// not a better one. Any other name is what it is.
std::string choose_backend(std::string_view name);

}  // namespace penstock
