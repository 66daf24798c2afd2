// What steps of the model take by the number of rows they compute: measured, since it is no simple function
// of them. A kernel works on tiles of rows, so that one more row may be free or may cost as much as all
// before it.
//
// Times are kept as a shape (relative to each other) times a level that all sizes share: longer contexts and
// other work on the machine change the level at once, although only the sizes in use are measured then.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

namespace penstock {

// The median of the last few values, which single disturbances do not move.
class RecentMedian {
 public:
  void add(double value);
  bool empty() const { return n_ == 0; }
  bool settled() const { return n_ >= 3; }  // no longer a single one's
  double value() const { return value_; }

 private:
  static constexpr int kKept = 7;
  std::array<double, kKept> values_{};
  int n_ = 0;
  double value_ = 0;
};

class StepCosts {
 public:
  StepCosts() { points_.reserve(kMostPoints), pools_.reserve(kMostPoints); }
  // rows >= 1. One step.
  void add(int rows, double seconds) { add(rows, seconds, 1); }
  // The best of several.
  void add_best(int rows, double seconds) { add(rows, seconds, kFirst); }
  bool empty() const { return points_.empty(); }
  // Whether there were at least so many steps of about this size.
  bool knows(int rows, int n_steps = 1) const;
  double level() const { return level_; }
  // Seconds at level 1. Between measured sizes on a line, never falling: where a size took longer than a larger one, both are taken
  // to cost the same, by how often each was seen. Beyond the last one by the mean
  // slope; with a single size each row costs prior_share of the time per row there.
  double shape(int rows, double prior_share) const;

 private:
  // A machine that was disturbed when a size was first seen would be believed for long: until there are three values the
  // least counts, then their median, and from then on what steps take changes it slowly.
  static constexpr int kFirst = 3;
  struct Point {
    int rows;
    double shape;
    int n = 1;
    std::array<double, kFirst> first{};
    double fitted = 0;  // the shape, or that of its pool
    void add_first(double value);
  };
  // Neighbouring sizes with one shape.
  struct Pool {
    double sum = 0, n = 0;
    size_t n_points = 0;
    double mean() const { return sum / n; }
  };
  void add(int rows, double seconds, int n_steps);
  void note(int rows, double seconds, int n_steps);
  void fit();
  static constexpr int kMostPoints = 320;  // of all sizes to 2^20
  std::vector<Point> points_;              // ascending by rows
  std::vector<Pool> pools_;                // of fit()
  double level_ = 1;
};

}  // namespace penstock
