// Measured time of the model's steps by the number of rows they compute. It is not proportional to
// the rows: a kernel works on tiles of rows, so that one more row may be free or may cost as much
// as all before it.
//
// Times are kept as a shape (relative to each other) times a level that all sizes share: longer
// contexts and other work on the machine change the level at once, although only the sizes in use
// are measured then.
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
  // enough values that one disturbed value does not decide
  bool settled() const { return n_ >= 3; }
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
  // Adds the time of one step. REQUIRES: rows >= 1.
  void add(int rows, double seconds) { add(rows, seconds, 1); }
  // Adds the shortest time of several steps, which counts as much as several values. REQUIRES: rows
  // >= 1.
  void add_best(int rows, double seconds) { add(rows, seconds, kFirst); }
  bool empty() const { return points_.empty(); }
  // Whether at least n_steps steps of about this many rows were measured.
  bool knows(int rows, int n_steps = 1) const;
  // Factor that all sizes share: a step of `rows` rows takes level() * shape(rows, ...) seconds.
  double level() const { return level_; }
  // Returns the seconds of a step at level 1: interpolated linearly between measured sizes and
  // never falling (where a size took longer than a larger one, both get their mean, weighted by how
  // often each was measured); extrapolated with the mean slope. With a single measured size each
  // further or missing row costs prior_share of the time per row there.
  double shape(int rows, double prior_share) const;

 private:
  // Values of a size before its shape changes slowly: until there are kFirst the least of them
  // counts, then their median, so that a disturbed first measurement does not last.
  static constexpr int kFirst = 3;
  struct Point {
    int rows;
    double shape;
    int n = 1;
    std::array<double, kFirst> first{};
    // shape after fit(): never falling from size to size
    double fitted = 0;
    void add_first(double value);
  };
  // Neighbouring sizes that fit() gives one shape (pool adjacent violators).
  struct Pool {
    double sum = 0, n = 0;
    size_t n_points = 0;
    double mean() const { return sum / n; }
  };
  void add(int rows, double seconds, int n_steps);
  void note(int rows, double seconds, int n_steps);
  void fit();
  static constexpr int kMostPoints = 320;  // most points that sizes up to 2^20 make
  std::vector<Point> points_;              // ascending by rows
  std::vector<Pool> pools_;                // scratch of fit()
  double level_ = 1;
};

}  // namespace penstock
