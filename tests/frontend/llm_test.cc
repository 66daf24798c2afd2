#include "penstock/llm.h"
#include "support/test_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "formats/weight_source.h"
#include "frontend/session.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

std::unique_ptr<LLM> open_story_model() {
  EngineConfig config;
  config.model = models_dir().string() + "/penstock-stories-15m-q8_0.gguf";
  config.max_num_seqs = 8;
  config.batch_invariant = true;
  config.threads = 1;
  auto opened = LLM::open(config);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return std::move(opened).value();
}

LLM& story_model() {
  static const std::unique_ptr<LLM> llm = open_story_model();
  return *llm;
}

SamplingParams greedy(int max_tokens) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  params.temperature = 0;
  return params;
}

const std::string kPrompt = "Once upon a time, there was a little";

std::string greedy_text(int max_tokens) {
  return story_model().generate(kPrompt, greedy(max_tokens)).value().outputs[0].text;
}

TEST(LLM, StreamsTheTextItReturns) {
  std::string streamed;
  std::vector<TokenId> tokens;
  int n_ends = 0;
  GenerateOptions options;
  options.on_text = [&](const TextDelta& delta) {
    streamed += delta.text;
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    n_ends += delta.finish != FinishReason::kNone;
    return true;
  };
  const RequestOutput output = story_model().generate(kPrompt, greedy(40), options).value();
  EXPECT_EQ(output.prompt, kPrompt);
  EXPECT_EQ(streamed, output.outputs[0].text);
  EXPECT_EQ(n_ends, 1);
  EXPECT_EQ(output.outputs[0].stats.completion_tokens,
            static_cast<int>(output.outputs[0].token_ids.size()));
  EXPECT_FALSE(streamed.empty());
  EXPECT_EQ(streamed.front(), ' ') << "the text goes on after the prompt";
  EXPECT_EQ(tokens, output.outputs[0].token_ids);
}

// All tokens that the deltas brought for the first output, one after the other.
std::vector<TokenId> told_tokens(const SamplingParams& params, CompletionOutput& output) {
  std::vector<TokenId> tokens;
  GenerateOptions options;
  options.on_text = [&](const TextDelta& delta) {
    tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
    return true;
  };
  output = story_model().generate(kPrompt, params, options).value().outputs[0];
  return tokens;
}

TEST(LLM, DeltasBringTheTokensWhoseTextWasHeldBack) {
  const std::string text = greedy_text(40);
  SamplingParams params = greedy(40);
  params.stop = {text.substr(5, 12) + "never written"};
  CompletionOutput output;
  const std::vector<TokenId> told = told_tokens(params, output);
  EXPECT_EQ(output.text, text);
  EXPECT_EQ(told, output.token_ids);
}

TEST(LLM, DeltasRepeatNoTokenAfterAStopString) {
  SamplingParams params = greedy(40);
  params.stop = {greedy_text(40).substr(12, 5)};
  CompletionOutput output;
  const std::vector<TokenId> told = told_tokens(params, output);
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(told, output.token_ids);
}

TEST(LLM, StopStringsCutTheText) {
  const std::string text = greedy_text(40);
  const std::string stop = text.substr(12, 5);
  SamplingParams params = greedy(40);
  params.stop = {"never written", stop};
  const CompletionOutput cut = story_model().generate(kPrompt, params).value().outputs[0];
  EXPECT_EQ(cut.text, text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.finish_reason, FinishReason::kStop);
  EXPECT_EQ(std::get<std::string>(cut.stop_reason), stop);
  params.include_stop_str_in_output = true;
  EXPECT_EQ(story_model().generate(kPrompt, params).value().outputs[0].text,
            text.substr(0, text.find(stop) + stop.size()));
}

TEST(LLM, ManyPromptsKeepTheirOrder) {
  std::vector<Prompt> prompts;
  for (int i = 0; i < 20; ++i) prompts.emplace_back("The number " + std::to_string(i) + " was");
  size_t last_done = 0;
  GenerateOptions options;
  options.on_progress = [&](size_t done, size_t total) {
    EXPECT_EQ(done, ++last_done);
    EXPECT_EQ(total, 20u);
  };
  const auto outputs = story_model().generate(prompts, greedy(8), options).value();
  ASSERT_EQ(outputs.size(), 20u);
  EXPECT_EQ(last_done, 20u);
  for (int i = 0; i < 20; i += 7) {
    const auto alone = story_model().generate(prompts[i], greedy(8)).value();
    EXPECT_EQ(outputs[i].prompt, std::get<std::string>(prompts[i]));
    EXPECT_EQ(outputs[i].outputs[0].token_ids, alone.outputs[0].token_ids);
  }
}

TEST(LLM, TheSeedDecides) {
  SamplingParams params;
  params.max_tokens = 20;
  params.seed = 5;
  params.n = 3;
  const auto first = story_model().generate(kPrompt, params).value();
  const auto again = story_model().generate(kPrompt, params).value();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(first.outputs[i].token_ids, again.outputs[i].token_ids);
  EXPECT_NE(first.outputs[0].token_ids, first.outputs[1].token_ids);
}

TEST(LLM, BadWordsAndBannedTokensAreNeverWritten) {
  const std::string text = greedy_text(30);
  const size_t space = text.find(' ', 1);
  const std::string word = text.substr(1, space - 1);
  SamplingParams params = greedy(30);
  params.bad_words = {word};
  const std::string other = story_model().generate(kPrompt, params).value().outputs[0].text;
  EXPECT_NE(other.substr(1, word.size() + 1), text.substr(1, word.size() + 1)) << word;
}

TEST(LLM, PromptLogprobsAgreeWithTheOutputs) {
  SamplingParams params = greedy(10);
  params.logprobs = 1;
  const RequestOutput written = story_model().generate(kPrompt, params).value();
  std::vector<TokenId> all = written.prompt_token_ids;
  all.insert(all.end(), written.outputs[0].token_ids.begin(), written.outputs[0].token_ids.end());
  SamplingParams score;
  score.max_tokens = 0;
  score.prompt_logprobs = 0;
  const RequestOutput scored = story_model().generate(all, score).value();
  ASSERT_EQ(scored.prompt_logprobs.size(), all.size());
  EXPECT_TRUE(scored.prompt_logprobs[0].empty());
  double sum = 0;
  for (size_t i = 0; i < written.outputs[0].token_ids.size(); ++i) {
    const TokenLogprob& generated = written.outputs[0].logprobs[i][0];
    const TokenLogprob& seen = scored.prompt_logprobs[written.prompt_token_ids.size() + i][0];
    EXPECT_EQ(generated.token, seen.token);
    EXPECT_EQ(generated.logprob, seen.logprob) << "batch-invariant: the same bits";
    sum += generated.logprob;
  }
  EXPECT_NEAR(written.outputs[0].cumulative_logprob, sum, 1e-4);
}

TEST(LLM, CanBeStoppedByItsCallbacks) {
  SamplingParams params = greedy(400);
  params.ignore_eos = true;
  GenerateOptions options;
  int n_pieces = 0;
  options.on_text = [&](const TextDelta&) { return ++n_pieces < 5; };
  const auto output = story_model().generate(kPrompt, params, options).value();
  EXPECT_EQ(output.outputs[0].finish_reason, FinishReason::kAbort);
  EXPECT_LT(output.outputs[0].token_ids.size(), 400u);
  GenerateOptions stopped;
  stopped.should_stop = [] { return true; };
  const std::vector<Prompt> prompts(30, kPrompt);
  const std::vector<RequestOutput> outputs =
      story_model().generate(prompts, params, stopped).value();
  for (const RequestOutput& each : outputs) {
    EXPECT_NE(each.outputs[0].finish_reason, FinishReason::kNone);
  }
  GenerateOptions timed;
  timed.timeout = std::chrono::milliseconds(1);
  const auto late = story_model().generate(kPrompt, params, timed).value();
  EXPECT_EQ(late.outputs[0].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(late.outputs[0].error->code, ErrorCode::kDeadlineExceeded);
}

TEST(LLM, RefusesWithTheReason) {
  const std::vector<TokenId> too_long(story_model().engine().info().max_model_len, 5);
  const auto long_prompt = story_model().generate(too_long, greedy(5));
  ASSERT_FALSE(long_prompt);
  EXPECT_THAT(long_prompt.error().message, ::testing::HasSubstr("maximum context length is 512"));
  SamplingParams bad = greedy(5);
  bad.top_k = -5;
  EXPECT_EQ(story_model().generate(kPrompt, bad).error().code, ErrorCode::kInvalidArgument);
  const ChatMessage message{"user", "hello"};
  EXPECT_FALSE(story_model().has_chat_template());
  EXPECT_FALSE(story_model().chat(std::span(&message, 1), greedy(5)));
  EngineConfig missing;
  missing.model = "/does/not/exist.gguf";
  EXPECT_EQ(LLM::open(missing).error().code, ErrorCode::kNotFound);
}

// The counter once it is `value`, or what it is after a while: events come before their step's
// metrics.
double settled(LLM& llm, Counter Metrics::* counter, double value) {
  double now = 0;
  for (int i = 0; i < 5000; ++i) {
    if ((now = (llm.engine().metrics().*counter).value) >= value) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return now;
}

// A prompt that is refused is refused for all: none of the others has run or goes on behind the
// error.
TEST(LLM, NothingRunsWhenOnePromptIsRefused) {
  const auto llm = open_story_model();
  const TokenId n = llm->engine().info().vocab_size;
  const std::vector<Prompt> prompts = {kPrompt, std::vector<TokenId>{1, 2, n}};
  const auto refused = llm->generate(prompts, greedy(100));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("prompt 1"));
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr(std::to_string(n)));
  llm->generate(kPrompt, greedy(1)).value();  // whatever came before has been taken in by now
  const auto n_own = static_cast<double>(llm->encode(kPrompt).size());
  EXPECT_EQ(settled(*llm, &Metrics::prompt_tokens, n_own), n_own);
}

// What a callback throws leaves no request running.
TEST(LLM, AThrowingCallbackEndsItsRequests) {
  const auto llm = open_story_model();
  SamplingParams params = greedy(400);
  params.ignore_eos = true;
  GenerateOptions options;
  options.on_text = [](const TextDelta&) -> bool { throw std::runtime_error("mine"); };
  const std::vector<Prompt> prompts(3, kPrompt);
  EXPECT_THROW((void)llm->generate(prompts, params, options), std::runtime_error);
  EXPECT_EQ(settled(*llm, &Metrics::request_success_abort, 3), 3);
}

TEST(LLM, ChatRendersTheGivenTemplate) {
  const ChatMessage messages[] = {{"system", "Be kind."}, {"user", "Tell me a story."}};
  ChatOptions chat;
  chat.chat_template =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if "
      "add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(story_model().render_chat(messages, chat).value(),
            "<system>Be kind.\n<user>Tell me a story.\n<assistant>");
  const auto output = story_model().chat(messages, greedy(5), {}, chat).value();
  EXPECT_EQ(output.outputs[0].token_ids.size(), 5u);
}

TEST(LLM, MayBeCalledFromSeveralThreads) {
  const std::string expected = greedy_text(12);
  std::vector<std::thread> threads;
  std::atomic<int> n_same = 0;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { n_same += greedy_text(12) == expected; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_same, 4);
}

// The engine goes on until it is told of a stop string: what happens to those tokens is none of the
// reply's.
TEST(OutputBuilder, AnErrorBehindAStopStringIsNoError) {
  const auto source =
      open_weights(models_dir().string() + "/penstock-stories-15m-q8_0.gguf").value();
  const auto tokenizer = Tokenizer::load(*source).value();
  const std::vector<TokenId> prompt = tokenizer->encode("Once upon a time");
  for (const bool stops : {true, false}) {
    SamplingParams params = greedy(8);
    if (stops) params.stop = {"time"};
    OutputBuilder builder(*tokenizer, params, prompt);
    bool stopped = false;
    for (const TokenId token : tokenizer->encode(" a time")) {
      OwnedEvent event;
      event.token = token;
      stopped |= builder.add(event).stopped_here;
    }
    EXPECT_EQ(stopped, stops);
    OwnedEvent event;
    event.finish = FinishReason::kError;
    event.end = std::make_unique<OwnedEvent::End>(
        OwnedEvent::End{{}, Error{ErrorCode::kInvalidArgument, "no token can be chosen"}});
    EXPECT_TRUE(builder.add(event).finished);
    const CompletionOutput& output = builder.output(0);
    EXPECT_EQ(output.finish_reason, stops ? FinishReason::kStop : FinishReason::kError);
    EXPECT_EQ(output.error.has_value(), !stops);
  }
}

TEST(OutputBuilder, ForgetsLogprobsThatWereTold) {
  const auto source =
      open_weights(models_dir().string() + "/penstock-stories-15m-q8_0.gguf").value();
  const auto tokenizer = Tokenizer::load(*source).value();
  SamplingParams params = greedy(8);
  params.logprobs = 2;
  OutputBuilder builder(*tokenizer, params, tokenizer->encode("Once upon"));
  for (const TokenId token : tokenizer->encode(" a time")) {
    OwnedEvent event;
    event.token = token;
    event.logprob = {token, -1, 1};
    event.alternatives = {{token, -1, 1}, {token + 1, -2, 2}};
    builder.add(event);
    ASSERT_EQ(builder.output(0).logprobs.size(), 1u);
    EXPECT_EQ(builder.output(0).logprobs.back()[0].token, token);
    builder.forget_logprobs(0);
  }
  EXPECT_GT(builder.output(0).token_ids.size(), 1u);
}

}  // namespace
}  // namespace penstock
