// How likely a question needs the large model: logistic regression on its vector.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct RouteExample {
  std::string question;
  bool needs_large = false;
};

// JSON lines, each with `prompt` (a text) or `messages` (of a chat, whose last user's text counts), and one of
//   label: 1 or true, "large": the large model is needed; 0, false, "small": the small one does
//   small, large: scores of the answers of both: the large one is needed where it is better by more than `margin`
// Errors: kNotFound, kInvalidArgument with the line.
Result<std::vector<RouteExample>> read_route_examples(const std::string& file, double margin);

class RouteScore {
 public:
  // strength: of the ridge that keeps weights small. Vectors: all of one length. Error: kInvalidArgument, fewer than two
  // examples, or all of one kind.
  static Result<RouteScore> train(std::span<const std::vector<float>> vectors,
                                  const std::vector<bool>& needs_large, double strength);
  // A file of JSON. Errors: kNotFound, kIo, kCorruptFile, kUnsupported.
  static Result<RouteScore> load(const std::string& file);
  Status save(const std::string& file) const;

  size_t dimensions() const { return weights_.size(); }
  // From 0 to 1. REQUIRES: a vector of that length.
  double operator()(std::span<const float> vector) const;
  double threshold = 0.5;  // from which the large model is asked
  std::string embedder;    // what made the vectors, for people

 private:
  std::vector<double> weights_;
  double bias_ = 0;
};

// What a threshold would do to examples with such scores.
struct RouteOutcome {
  double threshold = 0, to_large = 0;  // share of all
  double found = 0;                    // of those that need it, how many get it
};
// Of evenly spaced shares, from all to none.
std::vector<RouteOutcome> route_outcomes(std::vector<std::pair<double, bool>> scored, int n_steps);
// The chance that one that needs the large model scores higher than one that does not.
double route_auc(std::vector<std::pair<double, bool>> scored);

}  // namespace penstock
