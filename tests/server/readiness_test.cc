#include "server/services/readiness.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/test_data.h"

namespace penstock {
namespace {

bool has_retry_after(const HttpReply& reply) {
  return std::ranges::any_of(reply.headers,
                             [](const auto& one) { return one.first == "Retry-After"; });
}

TEST(Readiness, TellsWhetherRequestsAreAnswered) {
  ModelSettings settings;
  settings.names = {"stories"};
  settings.engine.model = (models_dir() / "penstock-stories-1m-q8_0.gguf").string();
  settings.engine.threads = 1;
  settings.engine.kv_cache_memory = 8 << 20;
  ServedModels models;
  ASSERT_TRUE(models.add(std::make_unique<ServedModel>(std::move(settings))));
  Readiness readiness(models);
  EXPECT_EQ(readiness.state(), Readiness::State::kLoading);
  const auto loading = readiness.not_ready({});
  ASSERT_TRUE(loading);
  EXPECT_EQ(loading->status, 503);
  EXPECT_TRUE(has_retry_after(*loading));

  ASSERT_TRUE(models.load());
  EXPECT_EQ(readiness.state(), Readiness::State::kReady);
  EXPECT_FALSE(readiness.not_ready({}));

  EXPECT_TRUE(readiness.begin_drain(std::chrono::seconds(5)));
  EXPECT_EQ(readiness.state(), Readiness::State::kDraining);
  const auto draining = readiness.not_ready({});
  ASSERT_TRUE(draining);
  EXPECT_EQ(draining->status, 503);
  EXPECT_TRUE(has_retry_after(*draining));
}

}  // namespace
}  // namespace penstock
