// The engine: inbox -> plan -> forward -> sample -> commit -> one push per sink.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/beam_search.h"
#include "engine/prefill_pace.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "engine/step_draws.h"
#include "engine/step_model.h"
#include "engine/swap_store.h"
#include "engine/work_clock.h"
#include "model/batch_builder.h"
#include "penstock/engine.h"
#include "sampling/sampler.h"

namespace penstock {

struct EngineParts {
  EngineConfig config;  // resolved
  EngineInfo info;
  std::unique_ptr<StepModel> model;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Speculation> speculation;  // null: none
  std::unique_ptr<SwapStore> swap;           // null: preempted sequences are computed again
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  uint64_t fingerprint = 0;  // of the model and of all that shapes its cache
};

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(EngineParts parts);
  ~EngineImpl() override;

  const EngineInfo& info() const override { return info_; }
  const EngineConfig& config() const override { return config_; }
  Status check(const Request& request) const override;
  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override;
  void cancel(RequestId request, FinishReason reason) override;
  void cancel(RequestId request, int index, FinishReason reason) override;
  bool step() override;
  void start() override;
  void stop() override;
  Metrics metrics() const override;
  void reset_prefix_cache() override;
  Result<int> save_session(std::span<const TokenId> tokens, const std::string& path,
                           const std::string& cache_salt) override;
  Result<SessionTokens> load_session(const std::string& path) override;

  Scheduler& scheduler() { return *scheduler_; }
  StepModel& model() { return *model_; }

 private:
  struct RequestState;
  // One of the n sequences of a request.
  struct Running : Sequence {
    RequestState* request = nullptr;
    int index = 0;
    SamplerState sampler;
    bool joined = false;  // known to the scheduler (the others wait for the first one's prompt)
    bool done = false;
    int n_prompt_logprobs = 0;  // prompt positions reported
    double first_scheduled = -1, first_token = -1, last_token = -1;
    bool draft_priced = false;  // the draft asked for is to stop where it does not pay
    bool drafted = false;       // a draft was asked for in this step
    RequestStats stats;
    Error error;

    const SamplingSpec& spec() const { return *sampler.spec; }
  };
  struct PendingEvent {
    TokenEvent event;
    size_t first_alternative = 0, n_alternatives = 0;
  };
  struct RequestState {
    RequestId id{};
    Request request;
    std::shared_ptr<EventSink> sink;
    std::shared_ptr<const SamplingSpec> spec;
    std::vector<std::unique_ptr<Running>> sequences;
    std::unique_ptr<BeamSearch> beams;  // sequences [0, n_live) are the live beams
    int n_open = 0;
    double submitted = 0;
    bool queued = true;  // counts against the queue's bounds
    std::vector<PendingEvent> news;
    bool has_news = false;  // stands in with_news_
  };
  struct Cancel {
    RequestId request;
    int index;  // -1: all
    FinishReason reason;
  };

  double now() const { return std::chrono::duration<double>(Clock::now() - epoch_).count(); }
  void run_step(double started);
  // recovery.cc
  void fail(RequestState& state);
  void refuse(RequestState& state);
  void recover();
  void send_ends(RequestState& state, int n_sequences);
  void push_to_sink(RequestState& state);
  // requests.cc
  Status check_beams(const Request& request) const;
  void take_inbox();
  void start_request(std::unique_ptr<RequestState>& owned);
  void start_sequences(RequestState& state);
  void apply_cancel(const Cancel& cancel);
  void end_request(RequestState& state, int index, FinishReason reason, const Error& error);  // index -1: all
  void expire_deadlines();
  void leave_queue(RequestState& state);
  void thread_main();
  void run_jobs();
  Status between_steps(const std::function<void()>& work);
  // engine.cc
  void note_plan(double time);
  void move_blocks();
  void compute(double started);
  bool wants_prompt_rows(const ScheduledItem& item) const;
  const Batch& build_batch();
  void take_results(double time);
  void take_result(size_t i, double time);
  // draft_step.cc
  bool may_speculate(const Running& sequence) const;
  void ask_for_drafts();
  void propose_drafts();
  void verify_draft(Running& sequence, size_t item, double time);
  void compact_draft(const Running& sequence, int n_accepted);
  void note_draft_outcome(Running& sequence, int n_proposed, int n_accepted, int row);
  void tell_drafter();
  void learn_draft_costs();
  // engine.cc
  void report_prompt_logprobs(Running& sequence, const ScheduledItem& item, int first_row);
  void ask_for_draws();
  void ask_for_draws_of(size_t i);
  void ask_for_nodes(Running& sequence, const DraftTree& tree, int row);
  // beams.cc
  void start_beams(RequestState& state);
  void offer_beam(Running& beam, std::span<float> logits, double time);
  void advance_beams(RequestState& state, double time);
  void end_beams(RequestState& state, double time);
  void join(Running& child, const Running& first);
  void take_draw(Running& sequence, int draw, double time);
  void accept(Running& sequence, const SampleResult& sampled, std::span<const TokenLogprob> alternatives,
              double time);
  bool is_end(const Running& sequence, TokenId token, TokenEvent& event) const;
  void note_token(Running& sequence, double time);
  void end(Running& sequence, FinishReason reason, PendingEvent news);
  void end(Running& sequence, FinishReason reason) { end(sequence, reason, PendingEvent()); }
  void note_end(const Running& sequence, FinishReason reason, double time);
  void push(RequestState& state, const PendingEvent& news);
  void deliver();
  int prefill_limit();
  void learn_pace();
  void publish_metrics(double started);

  const EngineConfig config_;
  const EngineInfo info_;
  const int max_num_seqs_, max_num_batched_tokens_;
  const uint64_t fingerprint_;
  const Clock::time_point epoch_ = Clock::now();
  std::unique_ptr<StepModel> model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Speculation> speculation_;
  std::unique_ptr<SwapStore> swap_;
  std::vector<std::byte> swap_buffer_;  // one block

  // Shared with the callers of submit() and cancel().
  mutable std::mutex inbox_mutex_;
  std::condition_variable inbox_filled_;
  std::vector<std::unique_ptr<RequestState>> inbox_;
  std::vector<Cancel> cancels_;
  bool reset_cache_ = false, stopping_ = false, threaded_ = false;
  struct Job {
    const std::function<void()>* work;
    bool done = false, failed = false;  // failed: for want of memory
  };
  std::vector<Job*> jobs_;  // of callers that wait in between_steps
  std::condition_variable job_done_;
  uint64_t next_request_ = 1;
  int n_queued_ = 0;
  int64_t n_queued_tokens_ = 0;
  int64_t n_rejected_ = 0;

  // The engine thread's own.
  std::vector<std::unique_ptr<RequestState>> arrived_;
  std::vector<Cancel> cancelling_;
  std::unordered_map<uint64_t, std::unique_ptr<RequestState>> requests_;
  uint64_t next_sequence_ = 1;
  int n_with_deadline_ = 0;
  Plan plan_;
  BatchBuilder builder_;
  std::vector<int> first_rows_;  // [plan items] output row of each, or -1
  std::vector<char> all_rows_;
  StepDraws draws_;
  // A draw that an item of the plan waits for: of its sequence, of another one of the request that begins with it, or of
  // a node of its draft (sequence null).
  struct AskedDraw {
    Running* sequence;
    int draw;  // -1: cannot come
  };
  struct Range {
    size_t first = 0, n = 0;
  };
  std::vector<AskedDraw> asked_draws_;
  std::vector<Range> draws_of_;         // [plan items] in asked_draws_
  std::vector<TokenLogprob> verified_;  // alternatives of a draft's tokens
  // Of the step's drafts.
  std::vector<SeqId> may_draft_;
  std::vector<Speculation::Choice> choices_;
  std::vector<DraftTree> trees_;
  std::vector<DraftRequest> draft_requests_;
  std::vector<DraftOutcome> outcomes_;
  std::vector<int> draft_path_;
  std::vector<int32_t> move_from_, move_to_;
  const WorkClock work_clock_;
  PrefillPace pace_;
  double step_work_ = 0, draft_work_ = 0;  // seconds of work_clock_: the begin of the step; its drafts
  int tokens_gained_ = 0;
  int n_decoding_ = 0;  // sequences that decode in this step
  std::vector<int> prompt_rows_;
  std::vector<TokenLogprob> prompt_logprobs_;
  std::vector<TokenLogprob> alternatives_;
  std::vector<TokenLogprob> beam_candidates_;
  std::vector<RequestState*> with_news_;
  std::vector<TokenEvent> outgoing_;

  Metrics metrics_;
  mutable std::mutex metrics_mutex_;
  Metrics shared_metrics_;
  std::thread thread_;
};

}  // namespace penstock
