// Several ranks in one process, a thread each: what a model gives when they share it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "model/runner.h"
#include "ops/ops.h"
#include "parallel/communicator.h"

namespace penstock::testing {

// Calls work(rank, ops) as each of n ranks, with a backend of one thread, and waits for all.
inline void with_ranks(int n, const std::function<void(int rank, Ops& ops)>& work,
                       WireType wire = WireType::kF32, const std::string& backend = "cpu") {
  const Result<int> segment = make_shm_segment(n);
  ASSERT_TRUE(segment) << segment.error().message;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([rank, n, file = *segment, wire, &backend, &work] {
        CommunicatorConfig config;
        config.rank = rank, config.size = n, config.segment = file;
        const auto communicator = make_communicator("shm", config).value();
        const auto ops =
            make_ops(backend, {.n_threads = 1, .ranks = communicator.get(), .rank_wire = wire})
                .value();
        work(rank, *ops);
        EXPECT_TRUE(communicator->status()) << communicator->status().error().message;
        EXPECT_TRUE(communicator->barrier());  // nobody leaves before the others are done
      });
    }
  }
  close(*segment);
}

// The same with groups of ranks: those of one group share a stage's layers.
inline void with_groups(int n_groups, int group_size,
                        const std::function<void(Communicator& ranks, Ops& ops)>& work) {
  const int n = n_groups * group_size;
  const Result<int> segment = make_shm_segment(n);
  ASSERT_TRUE(segment) << segment.error().message;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([rank, n, group_size, file = *segment, &work] {
        CommunicatorConfig config;
        config.rank = rank, config.size = n, config.segment = file;
        const auto ranks = make_communicator("shm", config).value();
        ASSERT_TRUE(ranks->form_groups(group_size));
        const auto ops = make_ops("cpu", {.n_threads = 1, .ranks = ranks.get()}).value();
        work(*ranks, *ops);
        EXPECT_TRUE(ranks->status()) << ranks->status().error().message;
        // Nobody leaves before the others are done.
        std::vector<std::byte> done(1);
        for (int other = 0; other < n; ++other) {
          if (other != rank) {
            EXPECT_TRUE(ranks->send_to(done, other));
          }
        }
        for (int other = 0; other < n; ++other) {
          if (other != rank) {
            EXPECT_TRUE(ranks->receive_from(other, done));
          }
        }
      });
    }
  }
  close(*segment);
}

// Steps of a rank of such a group, which takes its input from the group before and gives its stream
// to the one behind.
class StageRunner {
 public:
  StageRunner(const Model& model, Ops& ops, Communicator& ranks, int stage)
      : runner_(model, ops, 16), model_(model), ranks_(ranks), stage_(stage) {}
  Rows step(const std::vector<Runner::Part>& parts) {
    const int group = ranks_.shard().n_ranks;
    std::vector<std::byte> given;
    if (stage_ > 0) {
      EXPECT_TRUE(ranks_.receive_from(ranks_.rank() - group, given));
    }
    std::vector<float> input(given.size() / sizeof(float));
    if (!given.empty()) std::memcpy(input.data(), given.data(), given.size());
    ForwardOptions options;
    options.stage_input = input;
    const Rows rows = runner_.step(parts, options);
    std::vector<float> stream;
    for (const auto& row : runner_.stream()) stream.insert(stream.end(), row.begin(), row.end());
    if (model_.stage_output_dim() > 0) {
      EXPECT_TRUE(ranks_.send_to(std::as_bytes(std::span(stream)), ranks_.rank() + group));
    }
    return rows;
  }

 private:
  Runner runner_;
  const Model& model_;
  Communicator& ranks_;
  const int stage_;
};

}  // namespace penstock::testing
