// Ops: the interface of a device, with whole-batch operations on rank-2 tensors. Nothing above it
// depends on a device.
//
// A backend owns its weights, caches and the memory of a step. A step is begin_step(batch),
// operations, submit(), wait(). REQUIRES: all calls come from one thread unless stated otherwise.
// Calls take effect in their order but may return earlier; wait(), read_rows() and a cache's
// read_block() and write_block() wait for the effects. begin_step() ends the life of all tensors of
// the previous step. Shapes are preconditions (checked in debug builds): a model validates its
// files before the first call. Activations are F32; a backend may round them inside an operation.
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
#include "kernels/activation.h"
#include "kernels/sample_row.h"
#include "ops/attention_params.h"
#include "ops/batch.h"
#include "ops/cache_spec.h"
#include "ops/encoded_params.h"
#include "ops/limits.h"
#include "ops/moe_params.h"
#include "ops/ngram_params.h"
#include "ops/recurrence_params.h"
#include "ops/select_params.h"
#include "ops/stream_params.h"
#include "ops/tensor.h"
#include "ops/weights.h"
#include "parallel/shard.h"
#include "parallel/wire.h"
#include "quant/grouped_matrix.h"
#include "quant/quant_type.h"

namespace penstock {

// K and V of all layers, and recurrent states. It knows shapes, not the owners of blocks.
class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const CacheSpec& spec() const = 0;
  virtual int n_blocks(int group) const = 0;
  // Content of one block in all layers of its group, in a form that only caches of the same kind
  // read. REQUIRES: no step is under way.
  virtual int64_t block_bytes(int group) const = 0;
  virtual void read_block(int group, BlockId block, std::span<std::byte> out) const = 0;
  virtual void write_block(int group, BlockId block, std::span<const std::byte> bytes) = 0;
};

struct NormParams {
  // [cols], null = ones; or [g, cols]: row r is multiplied by weights r % g
  const Vector* weight = nullptr;
  const Vector* bias = nullptr;  // [cols], null = zeros; only with layer norm
  float eps = 1e-5f;
  // subtract the mean (layer norm); otherwise RMS norm
  bool layer_norm = false;
};

// Input of products: norm(x), or x itself. A backend computes the norm when x is complete or within
// the products; until then only the backend may use `values`.
struct NormedInput {
  Tensor x;
  std::optional<NormParams> norm;  // nullopt: x is not normed, and values is x
  Tensor values;                   // the shape of x
};

struct LinearTarget {
  const Weight* weight;  // [out, in]
  const Vector* bias;    // [out] or null
  Tensor out;            // [n_tokens, out]
  // terms of the sequences' adapters (Batch::adapters); null: none
  const AdapterTerms* adapters = nullptr;
  // The weight has this rank's share of the inputs: the product is the sum over all ranks.
  bool partial = false;
};

// Rotary position embedding. Angles are precomputed per dimension pair; cos and sin are multiplied
// by `scale` (YaRN, longrope).
struct RopeParams {
  const Vector* inv_freq = nullptr;  // [rotary_dim / 2]
  float scale = 1.0f;
  // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  bool interleaved = false;
  int first = 0;  // first rotated feature of a head
  // added to the tokens' positions
  int offset = 0;
  // [rotary_dim / 2] longrope: frequencies of sequences that Batch::long_ropes marks; null: all
  // sequences use inv_freq.
  const Vector* long_inv_freq = nullptr;
  // [rotary_dim / 2] or null: which axis of Batch::axis_positions turns each pair, 0 to 2.
  const Vector* axes = nullptr;
};

// Rows of a step's tensors: as many as the batch has, or more in backends with fixed sizes. Rows
// beyond those of the batch are not read; their K and V are stored in a spare block of the cache.
struct StepShape {
  int tokens = 0;      // a row per token
  int outputs = 0;     // a row per output row of the batch
  bool given = false;  // the batch has given rows
  int encoded = 0;     // sequences that bring rows of an encoder (Batch::encoded)
  bool operator==(const StepShape&) const = default;
};

// Results of a model's step. They have a row for each output row of the batch, and perhaps more
// (StepShape).
struct StepOutputs {
  Tensor logits;  // [rows, vocab_size]; empty when not wanted
  Tensor hidden;  // [rows, model_dim], after the final norm
  // [n_tokens, model_dim]: states of all tokens after the final norm, or as ForwardOptions::taps
  // selects; empty if not wanted.
  Tensor states;
  // [n_tokens, ModelConfig::stage_dim()]: output of a pipeline stage that is not the last. All
  // other results are then empty.
  Tensor stream;
};

// Identifies the operations of a step. Steps with equal keys consist of the same operations in the
// same order with the same parameters; only the contents of their batches differ.
struct StepKey {
  const void* model = nullptr;
  const KvCache* cache = nullptr;
  StepShape shape;
  int n_layers = 0;
  bool logits = true, states = false;
  const int* taps = nullptr;
  bool adapters = false;  // some sequences have adapters
  bool operator==(const StepKey&) const = default;
};

using StepTicket = uint64_t;

struct MemoryState {
  // bytes; free: what this process may still take
  int64_t total = 0, free = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual const char* name() const = 0;  // "cpu/avx512"
  // Whether the calling thread computes, so that its own time is that of the operations.
  virtual bool computes_here() const { return false; }
  // Returns the state of the memory that holds weights and caches.
  virtual MemoryState memory() const = 0;
  // Error: the device is lost, or it has refused memory that a step needs (kResourceExhausted).
  // From then on nothing is computed, and zeros are read.
  virtual Status status() const { return {}; }
  // Recovers after memory was refused, with as much free memory as before. Results of the steps
  // since then are invalid. Returns false if the device is lost. REQUIRES: all steps were waited
  // for.
  virtual bool recover() { return status().has_value(); }
  virtual bool can_cache(KvDType dtype) const { return dtype != KvDType::kF8; }
  // Returns the backend beside a device that computes mixtures with experts in the host's memory
  // (MoeParams::on_host), made by the first call; null: there is none. Makes weights and vectors.
  virtual Ops* host() { return nullptr; }
  // Whether weights that host() makes from now on get twins, of which the device keeps the most used
  // in memory of its own (set_expert_room()). In batch-invariant runs it computes with all of them.
  virtual void keep_twins(bool on) { (void)on; }
  // Limits the device's memory for copies of the host's experts, and returns the limit: no more than
  // takes all experts of which steps were computed, if there were any.
  virtual int64_t set_expert_room(int64_t bytes) { return (void)bytes, 0; }
  // Whether host() computes with this weight of its own, and not the device with its twin.
  virtual bool host_computes(const Weight& weight) const { return (void)weight, true; }
  virtual ExpertTraffic expert_traffic() const { return {}; }  // any thread
  // Measures limits. read_bytes: size of the memory that is read repeatedly, 0 = more than caches
  // hold. With the bytes that a model reads for a token it shows the effect of caches. Takes about
  // half a second and at most 512 MiB. Returns the best of several rounds; too low beside other
  // load.
  virtual MachineLimits limits(int64_t read_bytes) = 0;

  // Copies the matrix into the backend's layout, or keeps a view of it if that layout is as fast.
  virtual Result<std::unique_ptr<Weight>> pack(const QuantizedMatrix& matrix) = 0;
  // Packs rows [first_row, first_row + n_rows). REQUIRES: GroupedMatrix::check accepts the matrix.
  // Its activation coding determines how linear() rounds activations.
  virtual Result<std::unique_ptr<Weight>> pack_grouped(const GroupedMatrix& matrix, int first_row,
                                                       int n_rows) = 0;
  // Error: kResourceExhausted.
  virtual Result<std::unique_ptr<Vector>> pack_vector(std::span<const float> values) = 0;
  // Returns an identifier of the form of stored weights, which differs for every other form; "" =
  // the backend does not store weights.
  virtual std::string stored_form() const { return {}; }
  // Returns the stored form of a weight: its description, and its packed_bytes() bytes, in place or
  // as a copy. REQUIRES: the backend stores weights.
  virtual std::string describe(const Weight& weight) const {
    (void)weight;
    return {};
  }
  virtual OwnedBytes store(const Weight& weight) const {
    (void)weight;
    return {};
  }
  // Restores a stored weight. The bytes are used in place or copied; `owner` keeps them valid.
  // Error: kCorruptFile if they are no stored weight (numbers in them are not checked).
  virtual Result<std::unique_ptr<Weight>> restore(const StoredWeight& stored,
                                                  std::shared_ptr<const void> owner) {
    (void)stored, (void)owner;
    return make_error(ErrorCode::kUnsupported, "this backend stores no weights");
  }
  // Whether restore() uses bytes in place: weights may then stay in a mapped file instead of
  // memory.
  virtual bool restores_in_place() const { return false; }
  // Returns the bytes of experts in a mapped file (MoeParams::mapped) that had to be read when they
  // were chosen, since the start. Any thread.
  virtual int64_t expert_bytes_read() const { return 0; }
  // Makes a cache with n_blocks[g] blocks for cache group g. Error: kResourceExhausted, with both
  // sizes.
  virtual Result<std::unique_ptr<KvCache>> make_cache(const CacheSpec& spec,
                                                      std::span<const int> n_blocks) = 0;

  // Number of host threads of the backend, and a parallel loop: fn(ctx, item, thread) for every
  // item in [0, n_items). For work of the host between two operations; fn must not throw or call
  // the backend.
  virtual int n_host_threads() const { return 1; }
  virtual void for_each(int n_items, void (*fn)(void* ctx, int item, int thread), void* ctx) {
    for (int i = 0; i < n_items; ++i) fn(ctx, i, 0);
  }

  // Begins a step over `batch`, which its operations read (null: over tensors alone), and ends the
  // life of the previous step's tensors. REQUIRES: the batch's arrays are unchanged until submit()
  // returns.
  virtual StepShape begin_step(const Batch* batch) = 0;
  // Runs the operations of a step, which fn calls. A backend may record them and replay the record
  // in a later step with the same key, without calling fn; the outputs are then in the same places.
  // REQUIRES: fn only calls operations and makes tensors, and depends on nothing but the key.
  template <class Fn>
  StepOutputs run(const StepKey& key, Fn&& fn) {
    return run_step(
        key, [](void* ctx) { return (*static_cast<std::remove_reference_t<Fn>*>(ctx))(); }, &fn);
  }
  // Ends the step, which may still be computed while the host continues. Its tensors can be read.
  virtual StepTicket submit() { return 0; }
  // Waits for that step and all earlier ones.
  virtual void wait(StepTicket ticket) { (void)ticket; }
  // Returns an uninitialized tensor, valid until the next begin_step(). F32, unless the backend
  // stores this role in another type.
  virtual Tensor new_tensor(int rows, int cols, TensorRole role = TensorRole::kActivation) = 0;

  // Copies all rows of x as F32, after all earlier operations. Waits.
  virtual void read_rows(Tensor x, std::span<float> out) = 0;
  // Sets the first rows of x to values, which are whole rows, and the others to 0.
  virtual void write_rows(std::span<const float> values, Tensor x) = 0;
  // Returns the first row of a tensor (F32, rows row_stride apart) that the host may read and
  // change in place; null if tensors are not in host memory. HostRows (host_rows.h) handles both.
  virtual float* in_place(Tensor x) {
    (void)x;
    return nullptr;
  }

  // out[t] = table[token t] * scale; tokens beyond the table use its first row.
  virtual void embed_tokens(const Weight& table, float scale, Tensor out) = 0;
  // As embed_tokens(), for a rank whose table has the rows from `first` on: zeros for all other
  // tokens, so that the sum over all ranks is the result of the whole table.
  virtual void embed_share(const Weight& table, int first, float scale, Tensor out) = 0;
  // out[t] += table[position of token t].
  virtual void embed_positions(const Weight& table, Tensor out) = 0;
  // out[t] += table[type of token t].
  virtual void embed_token_types(const Weight& table, Tensor out) = 0;
  // x[row] = level 0 of the batch's given rows (GivenRows). REQUIRES: StepShape::given.
  virtual void put_given(Tensor x) = 0;
  // x[row] += the given rows' level `level`, [1, Batch::given_levels). REQUIRES: StepShape::given.
  virtual void add_given(int level, Tensor x) = 0;
  // out[i] = x[output_rows[i]].
  virtual void gather_outputs(Tensor x, Tensor out) = 0;
  virtual void norm(Tensor x, const NormParams& params, Tensor out) = 0;  // out may be x
  // x += delta * delta_scale; out = norm(x).
  virtual void add_norm(Tensor x, Tensor delta, float delta_scale, const NormParams& params,
                        Tensor out) = 0;
  virtual void add(Tensor x, Tensor delta, float delta_scale) = 0;  // x += delta * delta_scale
  // x *= factor; then cap * tanh(x / cap) if cap > 0
  virtual void scale(Tensor x, float factor, float softcap) = 0;
  // targets[i].out = x weight_i^T + bias_i + the terms of the sequences' adapters. All targets
  // share x, which is quantized once.
  virtual void linear(Tensor x, std::span<const LinearTarget> targets) = 0;
  // Row r of out = row r of x times weights[r % n]^T, for n weights: rows are the heads of tokens.
  virtual void linear_by_head(Tensor x, std::span<const std::unique_ptr<Weight>> weights,
                              Tensor out) {
    const int n = static_cast<int>(weights.size());
    for (int h = 0; h < n; ++h) {
      const LinearTarget target{weights[static_cast<size_t>(h)].get(), nullptr, out.every(h, n)};
      linear(x.every(h, n), {&target, 1});
    }
  }
  virtual void copy(Tensor from, Tensor to) = 0;  // to = from
  virtual void clear(Tensor x) = 0;               // x = 0
  // Rounds each row to 8 bits: x = round(x * 127 / m) * m / 127, m = max(|row|, 1e-5), halves to
  // even (BitNet).
  virtual void round_int8(Tensor x) = 0;
  virtual void activate(Tensor x, const ActivationFunction& f) = 0;  // x = f(x)
  virtual void activate_mul(Tensor gate, Tensor up, const ActivationFunction& f,
                            Tensor out) = 0;  // out = f(gate) * up
  // x[t] *= f(gate[t]); gate: [n_tokens, 1]; f has no parameters.
  virtual void gate_rows(Tensor x, Tensor gate, Activation f) = 0;
  virtual void multiply(Tensor x, Tensor by) = 0;              // x *= by, element by element
  virtual void scale_columns(Tensor x, const Vector& by) = 0;  // x[t] *= by
  // from consists of n streams and to of m, all `width` wide and concatenated. Stream q of to[t] +=
  // sum over p of by[t, q * n + p] * stream p of from[t]. from: [n_tokens, n * width], to:
  // [n_tokens, m * width], by: [n_tokens, m * n].
  virtual void add_mixed(Tensor from, Tensor by, int width, Tensor to) = 0;
  // x[t] *= sqrt(mean(like[t]^2) / max(mean(x[t]^2), least)).
  virtual void match_magnitude(Tensor x, Tensor like, float least) = 0;
  // x[t] = max(x[t] - mean - deviations * standard deviation, 0), mean and deviation over x[t]
  // (Gemma 3n's sparse activations).
  virtual void keep_above(Tensor x, float deviations) = 0;
  virtual void scale_by_position(Tensor x, const PositionScale& scale) = 0;
  // Announces moe() with these arguments: operations between the two may be computed beside it.
  virtual void start_moe(Tensor /*x*/, Tensor /*router_logits*/, const MoeParams& /*params*/) {}
  // out = sum over the chosen experts of weight * down(f(gate(x)) * up(x)), or of weight * x, or of
  // nothing (MoeParams::idle_rest), where an expert is behind those in params (can_select());
  // router_logits: [n_tokens, n_experts].
  virtual void moe(Tensor x, Tensor router_logits, const MoeParams& params, Tensor out) = 0;
  // --- Fused operations: sequences of the operations above that a backend may compute as one.

  // Computes the norm of h. REQUIRES: h.x is complete.
  virtual void prepare(const NormedInput& h) {
    if (h.norm) norm(h.x, *h.norm, h.values);
  }
  // Returns norm(x) as a tensor.
  virtual Tensor materialize(const NormedInput& h) { return h.values; }
  // targets[i].out = h weight_i^T + bias_i.
  virtual void norm_linear(const NormedInput& h, std::span<const LinearTarget> targets) {
    linear(h.values, targets);
  }
  // out = f(h gate^T) * (h up^T). The targets' own tensors are scratch, and `out` may be the
  // gate's.
  virtual void gated_linear(const NormedInput& h, const LinearTarget& gate, const LinearTarget& up,
                            const ActivationFunction& f, Tensor out) {
    const LinearTarget both[] = {gate, up};
    linear(h.values, both);
    activate_mul(gate.out, up.out, f, out);
  }
  // x += delta * delta_scale; then computes the norm h of x (null: no norm follows).
  virtual void add_whole(Tensor x, Tensor delta, float delta_scale, const NormedInput* h) {
    if (h != nullptr && h->norm) return add_norm(x, delta, delta_scale, *h->norm, h->values);
    add(x, delta, delta_scale);
  }
  // As add_whole(), for the sum of all ranks' delta, which is overwritten.
  virtual void add_shares(Tensor x, Tensor delta, float delta_scale, const NormedInput* h) {
    all_reduce(delta);
    add_whole(x, delta, delta_scale, h);
  }
  // As add_whole(), for delta = in weight^T + bias, whole or partial. The target's own tensor is
  // scratch.
  virtual void linear_add(Tensor in, const LinearTarget& target, Tensor x, float delta_scale,
                          const NormedInput* h) {
    linear(in, {&target, 1});
    if (target.partial) return add_shares(x, target.out, delta_scale, h);
    add_whole(x, target.out, delta_scale, h);
  }

  // --- Tensor parallelism: several ranks, each with its share of the weights (OpsConfig::ranks).
  // All ranks call the same of these operations. If the run has failed (Communicator::status()), x
  // is undefined afterwards.
  virtual Shard shard() const { return {}; }
  // x = sum of all ranks' x, with the same bits on every rank.
  virtual void all_reduce(Tensor x) { (void)x; }
  // Gathers x, of which every rank has its own columns, shard().range(x.cols).
  virtual void all_gather(Tensor x) { (void)x; }
  // As all_gather(), for the step's logits. Only the most likely ones are gathered if no others are
  // wanted (Batch::row_tops).
  virtual void gather_logits(Tensor x) { all_gather(x); }

  // Rotates q and k in place, for models that transform them between rotation and storing.
  virtual void rotate(Tensor q, Tensor k, const RopeParams& rope, int head_dim) = 0;
  // Rotates q and k in place (rope null: learned positions) and stores k and v of every token in
  // the cache. v is Tensor() if the layer's values are in its keys.
  virtual void rope_and_store(Tensor q, Tensor k, Tensor v, const RopeParams* rope, KvCache& cache,
                              int layer) = 0;
  // Causal (or tree-masked) attention of q over each sequence's cached tokens, within the layer's
  // window. q: [tokens, n_heads * head_dim], out: [tokens, n_heads * the layer's value_dim()].
  virtual void attend(Tensor q, const KvCache& cache, const AttentionParams& params,
                      Tensor out) = 0;
  // Whether these are there: select(), AttentionParams::selected and entries, MoeParams::token_experts,
  // experts without weights, embed_ngrams(), root_gates(), pool_keys(), mix_streams(), scale_heads_by_position().
  virtual bool can_select() const { return false; }
  // Whether all is there: bound_rows(), softmax_rows(), add_columns(), wkv(), AttentionParams::token_sinks,
  // ConvParams::of_token, MoeParams::result_scale, idle_rest, ExpertRouting::left_out_as_zero, too.
  virtual bool has_all() const { return false; }
  // Selects the params.top_k tokens with the highest scores among those that a token sees; of equal
  // scores the lower position. q: [tokens, n_heads * head_dim]; weights: [tokens, n_heads], no
  // columns: ones; out: [tokens, params.cols()], ascending positions in the sequence as I32 for each
  // selection, in rows of tokens that see more than params.most(). REQUIRES: can_select(); keys of
  // this step are stored.
  virtual void select(Tensor /*q*/, Tensor /*weights*/, const KvCache& /*cache*/,
                      const SelectParams& /*params*/, Tensor /*out*/) {}
  // out[t] = the token's rows of n-grams (NgramParams), one after the other: [tokens, heads * the
  // table's columns]. REQUIRES: can_select(); tokens are below 2^24 - 1.
  virtual void embed_ngrams(const NgramParams& /*params*/, KvCache& /*cache*/, Tensor /*out*/) {}
  // out[r] = sigmoid(sign(s) * sqrt(max(|s|, 1e-6))), s = scale * (a[r] . b[r]), sign(0) = 0; out:
  // [rows, 1]. REQUIRES: can_select().
  virtual void root_gates(Tensor /*a*/, Tensor /*b*/, float /*scale*/, Tensor /*out*/) {}
  // out[t] = key of the block that ends with token t (PoolParams), zeros if none does. keys, scores:
  // [tokens, params.width(features)], out: [tokens, features]; out is neither of the others.
  // REQUIRES: can_select().
  virtual void pool_keys(Tensor /*keys*/, Tensor /*scores*/, const PoolParams& /*params*/,
                         KvCache& /*cache*/, Tensor /*out*/) {}
  // Turns z[t], of n = params.count streams, into shares, in place: [tokens, n, 2 n or (2 + n) * n].
  // Columns [0, n): sigmoid(z scale[0] + base) + eps, by which streams are read. [n, 2 n): magnitude
  // sigmoid(z scale[1] + base) + write_eps, by which they are written. The others: the matrix C
  // [n, n] in the layout of add_mixed(), where C[j, k] is the share of stream j in the new stream k,
  // at k * n + j. In z and base its rows follow one another: C = softmax by row(z scale[2] + base) +
  // eps; columns are divided by their sum + eps; then iterations - 1 times rows and columns are.
  // REQUIRES: can_select().
  virtual void mix_streams(Tensor /*z*/, const StreamMixParams& /*params*/) {}
  // Multiplies head h of the token at position p by slopes[h] * log(1 + p) + biases[h]. x: [tokens,
  // n_heads * features]; slopes, biases: [n_heads]. REQUIRES: can_select().
  virtual void scale_heads_by_position(Tensor /*x*/, const Vector& /*slopes*/,
                                       const Vector& /*biases*/) {}
  // x[r] *= min(1, bound / (|x[r]| + 1e-6)). REQUIRES: has_all().
  virtual void bound_rows(Tensor /*x*/, float /*bound*/) {}
  // x[r] = softmax(x[r]). REQUIRES: has_all().
  virtual void softmax_rows(Tensor /*x*/) {}
  // x[t] += by. REQUIRES: has_all().
  virtual void add_columns(Tensor /*x*/, const Vector& /*by*/) {}
  // Computes RWKV's recurrence (WkvParams, WkvTensors). REQUIRES: has_all().
  virtual void wkv(const WkvTensors& /*tensors*/, const WkvParams& /*params*/, KvCache& /*cache*/) {
  }
  // rope_and_store() for the layer params.layer, then attend(), which a backend may fuse: q and k
  // are scratch afterwards. k and v are Tensor() if the layer attends to keys and values of an
  // earlier one.
  virtual void store_and_attend(Tensor q, Tensor k, Tensor v, const RopeParams* rope,
                                KvCache& cache, const AttentionParams& params, Tensor out) {
    if (k.cols > 0) {
      rope_and_store(q, k, v, rope, cache, params.layer);
    } else if (rope != nullptr) {
      rotate(q, k, *rope, cache.spec().layers[static_cast<size_t>(params.layer)].head_dim);
    }
    attend(q, cache, params, out);
  }
  // out[t] = bias + sum over taps k of weight[k] * x[t - taps + 1 + k]. Inputs before the step's
  // tokens come from the sequence's state, which then holds the step's last inputs; zeros precede a
  // sequence's first token.
  virtual void causal_conv(Tensor x, const ConvParams& params, KvCache& cache, Tensor out) = 0;
  // out[t] = output of the gated delta rule (DeltaParams), by value head. qkv: [tokens, 2 *
  // n_key_heads * key_dim + n_value_heads * value_dim], queries of all heads first; a: [tokens,
  // n_value_heads * decays_per_head()]; b: [tokens, n_value_heads]. All three are overwritten.
  virtual void gated_delta(Tensor qkv, Tensor a, Tensor b, const DeltaParams& params,
                           KvCache& cache, Tensor out) = 0;
  // out[t] = output of the scan (StateSpaceParams), by head. x: [tokens, n_heads * head_dim + 2 *
  // n_groups * state_dim]: inputs, then B, then C of all groups. dt: [tokens, n_heads],
  // overwritten; so is `scratch` of the same shape.
  virtual void state_space(Tensor x, Tensor dt, Tensor scratch, const StateSpaceParams& params,
                           KvCache& cache, Tensor out) = 0;
  // Whether put_encoded(), store_encoded() and attend_encoded() are there.
  virtual bool can_cross_attend() const { return false; }
  // rows [n_rows, features] = rows `index` of Batch::encoded. REQUIRES: can_cross_attend(); index <
  // StepShape::encoded.
  virtual void put_encoded(int /*index*/, Tensor /*rows*/) {}
  // Stores keys and values [n_rows, n_heads * head_dim] of these rows as the state of their sequence.
  // REQUIRES: as put_encoded().
  virtual void store_encoded(int /*index*/, Tensor /*k*/, Tensor /*v*/,
                             const EncodedParams& /*params*/, KvCache& /*cache*/) {}
  // Attention of q over all rows that its sequence has stored. q, out: [tokens, n_heads * head_dim].
  // REQUIRES: can_cross_attend(); a sequence has one block of states.
  virtual void attend_encoded(Tensor /*q*/, const EncodedParams& /*params*/,
                              const KvCache& /*cache*/, Tensor /*out*/) {}
  // Whether sample() draws in the backend; otherwise callers draw on the host.
  virtual bool samples() const { return false; }
  // Sets results[i] to what Sampler::draw (sampling/sampler.h) returns for rows[i] and its row of
  // `logits`, which is unchanged. May be called before or after submit() while the tensor is valid.
  // `rows` are read before this returns; what they point to and `results` belong to the backend
  // until the step's wait(). A result says if the draw is left to the host.
  virtual void sample(Tensor logits, std::span<const SampleRow> rows,
                      std::span<SampleResult> results) {
    (void)logits, (void)rows, (void)results;
  }
  // Copies K and V of all layers of a group from slot to slot (accepted tree paths, copy-on-write);
  // for a group of states from block to block.
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
  int n_threads = 0;  // 0 = as many as the process may use
  // one kernel family and summation order whatever the batch
  bool batch_invariant = false;
  // > 0: share of the threads among the models of the process
  double thread_weight = 1;
  // cpu: rows of a step's tensors are a multiple of this (tests of StepShape)
  int row_multiple = 1;
  // cpu: processors of its worker threads; the caller pins its own thread
  std::vector<int> cpus = {};
  // Ranks that share a model's weights; null: there is one. REQUIRES: they outlive the backend.
  Communicator* ranks = nullptr;
  WireType rank_wire = WireType::kF32;  // number format in which ranks exchange sums
  bool eager = false;                   // steps are not recorded and replayed
  // cpu: makes twins of all weights and vectors; null: there are none. REQUIRES: it outlives the
  // backend.
  TwinMaker* twins = nullptr;
};

// Makes a backend of THE list (backends.cc), with a name from choose_backend().
Result<std::unique_ptr<Ops>> make_ops(std::string_view name, const OpsConfig& config);
std::string backend_names();  // "cpu, …"
// Returns the backend for "auto" or "": the best one that is available and passes its self test
// against the CPU (self_test.h). The reason why it is not a better one is logged once. Any other
// name is returned unchanged.
std::string choose_backend(std::string_view name);

}  // namespace penstock
