// What the choice of drafts learns from times and outcomes, without an engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/calibration.h"
#include "engine/fake_drafter.h"
#include "engine/fake_model.h"
#include "engine/speculation.h"

namespace penstock {
namespace {

// A machine with given times, and text whose guesses are right with a given chance.
struct World {
  explicit World(std::map<int, double> seconds) : costs(std::move(seconds)) {
    for (const auto& [rows, time] : costs) speculation.note_calibration(rows, time);
  }

  double seconds(int rows) const {
    auto above = costs.lower_bound(rows);
    return above == costs.end() ? costs.rbegin()->second * rows / costs.rbegin()->first : above->second;
  }
  // n decoding sequences for `rounds` steps; tokens per second, where the plain rate is n / seconds(n).
  double run(int n, int rounds, double chance, double pass) {
    std::vector<SeqId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(SeqId(static_cast<uint64_t>(i + 1)));
    std::vector<Speculation::Choice> choices;
    double time = 0, tokens = 0;
    for (int round = 0; round < rounds; ++round) {
      speculation.choose(ids, n, choices);
      int rows = n, gained = n, passes = 0;
      std::vector<std::pair<int, int>> outcomes;  // proposed, accepted
      for (const Speculation::Choice& choice : choices) {
        const int k = !choice.priced
                          ? choice.nodes
                          : best_length(static_cast<float>(chance), speculation.prices(), choice.nodes);
        const int drafted = choice.nodes > 0 ? std::max(1, k) : 0;
        int kept = 0;
        while (kept < drafted && uniform(random) < chance) ++kept;
        rows += drafted, gained += kept;
        passes = std::max(passes, drafted);
        last_nodes = drafted;
        outcomes.emplace_back(choice.nodes > 0 ? drafted : -1, kept);
      }
      if (passes > 0) speculation.note_draft(pass * passes, n, passes);
      for (int i = 0; i < n; ++i) {
        const auto [drafted, kept] = outcomes[static_cast<size_t>(i)];
        if (drafted >= 0) speculation.note_outcome(ids[static_cast<size_t>(i)], n, drafted, kept);
      }
      speculation.note_step(n, rows, gained, seconds(rows), passes > 0);
      time += seconds(rows) + pass * passes, tokens += gained;
    }
    return tokens / time;
  }

  std::map<int, double> costs;
  std::shared_ptr<DraftScript> script = std::make_shared<DraftScript>();
  Speculation speculation{std::make_unique<FakeDrafter>(script), 0, false};
  std::mt19937 random{5};
  std::uniform_real_distribution<double> uniform{0, 1};
  int last_nodes = 0;
};

const std::map<int, double> kTiles = {{1, 1.0}, {2, 1.1},  {3, 1.28}, {4, 1.3},  {5, 1.57}, {6, 1.59},
                                      {7, 1.8}, {8, 1.85}, {9, 3.0},  {16, 3.2}, {17, 5.0}};

TEST(Chooser, ComesCloseToTheBestFixedLength) {
  for (const double chance : {0.4, 0.6, 0.75, 0.9}) {
    for (const double pass : {0.04, 0.2}) {
      double best = 1;
      for (int k = 1; k <= 15; ++k) {
        double tokens = 1, reach = 1;
        for (int i = 0; i < k; ++i) tokens += reach *= chance;
        World world(kTiles);
        best = std::max(best, tokens / (world.seconds(1 + k) + pass * k));
      }
      World world(kTiles);
      EXPECT_GT(world.run(1, 4000, chance, pass), 0.96 * best) << "chance " << chance << " pass " << pass;
    }
  }
}

TEST(Chooser, StopsWhereNothingIsRight) {
  World world(kTiles);
  EXPECT_GT(world.run(1, 3000, 0.02, 0.3), 0.97);
  EXPECT_EQ(world.last_nodes, 0);
}

TEST(Chooser, StopsWhereTheMachineIsBusy) {
  std::map<int, double> linear;
  for (int rows = 1; rows <= 512; rows *= 2) linear[rows] = 0.1 + rows;
  for (int rows = 33; rows <= 64; ++rows) linear[rows] = 0.1 + rows;
  World world(linear);
  const double plain = 32 / world.seconds(32);
  EXPECT_GT(world.run(32, 2000, 0.6, 0.5), 0.98 * plain);
}

// Cheap rows, so that only the guesses decide.
TEST(Chooser, AFewOfManySequencesFindOutWhetherDraftsPay) {
  std::map<int, double> cheap;
  for (int rows = 1; rows <= 1024; rows *= 2) cheap[rows] = 1 + 0.01 * rows;
  for (const double chance : {0.02, 0.9}) {
    World world(cheap);
    std::vector<SeqId> ids;
    for (uint64_t i = 1; i <= 32; ++i) ids.push_back(SeqId(i));
    std::vector<Speculation::Choice> choices;
    const auto n_drafting = [&] {
      world.speculation.choose(ids, 32, choices);
      return std::ranges::count_if(choices, [](const auto& choice) { return choice.nodes > 0; });
    };
    EXPECT_EQ(n_drafting(), 4);
    world.run(32, 8, chance, 0.1);
    EXPECT_EQ(n_drafting(), chance > 0.5 ? 32 : 0);
  }
}

TEST(Chooser, TriesAgainWhenTheTextGetsEasier) {
  World world(kTiles);
  world.run(1, 600, 0.02, 0.3);
  EXPECT_EQ(world.last_nodes, 0);
  world.run(1, 1500, 0.9, 0.1);
  EXPECT_GT(world.run(1, 500, 0.9, 0.1), 1.8);
}

TEST(Chooser, FixedLengthsAreNotPriced) {
  const auto script = std::make_shared<DraftScript>();
  Speculation speculation(std::make_unique<FakeDrafter>(script), 5, false);
  std::vector<Speculation::Choice> choices;
  const SeqId ids[] = {SeqId(1), SeqId(2)};
  speculation.choose(ids, 2, choices);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].nodes, 5);
  EXPECT_FALSE(choices[0].priced);
}

TEST(Chooser, CalibrationComputesStepsOfAllSizesThatFit) {
  const auto script = std::make_shared<DraftScript>();
  Speculation speculation(std::make_unique<FakeDrafter>(script), 0, false);
  FakeModel model(50, {4}, {0}, 4);
  calibrate(model, {.n_groups = 1, .block_size = 4, .max_rows = 6, .seconds = 10}, speculation);
  std::vector<Speculation::Choice> choices;
  const SeqId ids[] = {SeqId(1)};
  speculation.choose(ids, 1, choices);
  ASSERT_EQ(speculation.prices().max_nodes(), 16) << "prices are there at once";
}

}  // namespace
}  // namespace penstock
