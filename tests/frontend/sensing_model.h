// A tiny model that sees or hears, run as the golden files of tools/make_tiny_seeing.py and
// tools/make_tiny_hearing.py were made: six tokens, greedily, with 20 log-probabilities.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/collector.h"
#include "frontend/chat/chat_setup.h"

namespace penstock {

using SensedJson = nlohmann::ordered_json;

struct SensingModel {
  // spec: a drafter's name, or "". mmproj: as EngineConfig's.
  explicit SensingModel(const std::filesystem::path& model, int most_tokens = 0,
                        const std::string& spec = "", const std::string& mmproj = "") {
    EngineConfig config;
    config.model = model.string();
    config.mmproj = mmproj;
    config.threads = 2;
    config.max_model_len = 512;
    config.max_num_seqs = 4;
    config.kv_cache_dtype = "f32";
    config.batch_invariant = true;
    config.max_num_batched_tokens = most_tokens;
    if (!spec.empty()) config.spec = spec, config.spec_length = "3";
    auto opened = Session::open(config);
    EXPECT_TRUE(opened) << opened.error().message;
    session = std::move(opened).value();
    chat = ChatSetup::open(*session, {.trust_request_template = true}).value();
  }

  // settings: mm_processor_kwargs.
  Result<ChatTask> read(SensedJson messages, const std::string& chat_template = "",
                        const SensedJson& settings = nullptr) const {
    Conversation conversation;
    conversation.chat_template = chat_template;
    conversation.picture_settings = settings;
    conversation.messages = std::move(messages);
    return chat->read(std::move(conversation));
  }
  Request request_of(const ChatTask& task) const {
    Request request;
    request.prompt = task.prompt;
    const auto rows = session->eyes()->encode({.pictures = task.pictures.pictures});
    EXPECT_TRUE(rows) << rows.error().message;
    if (rows) session->give(request, session->eyes()->embeddings_of(task.pictures, *rows));
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 6;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 20;
    return request;
  }
  std::vector<std::shared_ptr<Collector>> run(const std::vector<Request>& requests) const {
    std::vector<std::shared_ptr<Collector>> sinks;
    for (const Request& request : requests) {
      sinks.push_back(std::make_shared<Collector>());
      const auto id = session->engine().submit(request, sinks.back());
      EXPECT_TRUE(id) << id.error().message;
    }
    while (session->engine().step()) {
    }
    return sinks;
  }

  std::unique_ptr<Session> session;
  std::unique_ptr<ChatSetup> chat;
};

// The conversations of a model's golden file.
inline SensedJson golden_talks(const std::filesystem::path& model) {
  return SensedJson::parse(std::ifstream(model / "golden.json"));
}

// Expects the reference's tokens, and its log-probabilities behind the prompt within 1e-3.
inline void expect_reply(const Collected::Sequence& got, const SensedJson& talk) {
  EXPECT_EQ(got.tokens, talk["reply"].get<std::vector<TokenId>>());
  ASSERT_FALSE(got.alternatives.empty());
  float worst = 0;
  for (const TokenLogprob& one : got.alternatives[0]) {
    const float wanted = talk["logprobs"][static_cast<size_t>(one.token)].get<float>();
    worst = std::max(worst, std::abs(one.logprob - wanted));
  }
  EXPECT_LT(worst, 1e-3f);
}

// Expects the references' prompts and replies of a golden file, one after the other, then all at once;
// and again, reuses: from the prefix cache.
inline void expect_replies(const SensingModel& model, const SensedJson& talks, bool reuses) {
  std::vector<Request> requests;
  for (const SensedJson& talk : talks) {
    const auto task =
        model.read(talk["messages"], "", talk.value("mm_processor_kwargs", SensedJson()));
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_EQ(task->prompt, talk["prompt"].get<std::vector<TokenId>>());
    requests.push_back(model.request_of(*task));
    expect_reply(model.run({requests.back()})[0]->result.sequences.at(0), talk);
  }
  model.session->engine().reset_prefix_cache();
  const auto together = model.run(requests), again = model.run(requests);
  for (size_t i = 0; i < talks.size(); ++i) {
    expect_reply(together[i]->result.sequences.at(0), talks[i]);
    expect_reply(again[i]->result.sequences.at(0), talks[i]);
    if (reuses) {
      EXPECT_GT(again[i]->result.sequences.at(0).stats.cached_tokens, 0);
    }
  }
}

}  // namespace penstock
