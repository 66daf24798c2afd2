// Several ranks in one process, a thread each: what a model gives when they share it.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ops/ops.h"
#include "parallel/communicator.h"

namespace penstock::testing {

// Calls work(rank, ops) as each of n ranks, with a backend of one thread, and waits for all.
inline void with_ranks(int n, const std::function<void(int rank, Ops& ops)>& work) {
  const Result<int> segment = make_shm_segment(n);
  ASSERT_TRUE(segment) << segment.error().message;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([rank, n, file = *segment, &work] {
        CommunicatorConfig config;
        config.rank = rank, config.size = n, config.segment = file;
        const auto communicator = make_communicator("shm", config).value();
        const auto ops = make_ops("cpu", {.n_threads = 1, .ranks = communicator.get()}).value();
        work(rank, *ops);
        EXPECT_TRUE(communicator->status()) << communicator->status().error().message;
        EXPECT_TRUE(communicator->barrier());  // nobody leaves before the others are done
      });
    }
  }
  close(*segment);
}

}  // namespace penstock::testing
