#include "server/http/turns.h"

#include <gtest/gtest.h>

#include <new>

namespace penstock {
namespace {

// Something for which memory runs out when it is kept.
struct Costly {
  explicit Costly(int of, bool fails = false) : number(of), fails_to_move(fails) {}
  Costly(Costly&& from)
      : number(from.number), fails_to_move(from.fails_to_move) {  // NOLINT: it throws
    if (fails_to_move) throw std::bad_alloc();
  }
  int number;
  bool fails_to_move;
};

TEST(Turns, OneOfEachAskerAfterTheOther) {
  Turns<int> turns;
  for (const int number : {10, 11, 12}) turns.add("one", number);
  turns.add("two", 20);
  turns.add("three", 30);
  turns.add("two", 21);
  for (const int expected : {10, 20, 30, 11, 21, 12}) EXPECT_EQ(turns.take(), expected);
  EXPECT_TRUE(turns.empty());
}

TEST(Turns, WhatCannotBeKeptChangesNothing) {
  for (const bool known : {false, true}) {
    Turns<Costly> turns;
    turns.add("one", Costly(1));
    if (known) turns.add("two", Costly(2));
    EXPECT_THROW(turns.add("two", Costly(3, true)), std::bad_alloc);
    EXPECT_EQ(turns.size_of("two"), known ? 1U : 0U);
    EXPECT_EQ(turns.take().number, 1);
    if (known) {
      EXPECT_EQ(turns.take().number, 2);
    }
    EXPECT_TRUE(turns.empty());
    turns.add("two", Costly(4));
    EXPECT_EQ(turns.take().number, 4);
  }
}

}  // namespace
}  // namespace penstock
