#include "server/routes/table/route_score.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/regular_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr const char* kFormat = "penstock-route-score";

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::string question_in(const Json& line) {
  if (line.contains("prompt") && line["prompt"].is_string())
    return line["prompt"].get<std::string>();
  if (!line.contains("messages") || !line["messages"].is_array()) return {};
  std::string text;
  for (const Json& message : line["messages"]) {
    if (!message.is_object() || message.value("role", Json()) != "user") continue;
    const Json content = message.value("content", Json());
    if (content.is_string()) text = content.get<std::string>();
  }
  return text;
}

// nullopt: the line has no label.
std::optional<bool> label_in(const Json& line, double margin) {
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto found = line.find(name);
    return found != line.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
  };
  if (const auto label = line.find("label"); label != line.end()) {
    if (label->is_boolean()) return label->get<bool>();
    if (*label == "large" || *label == 1) return true;
    if (*label == "small" || *label == 0) return false;
    return std::nullopt;
  }
  const auto small = number("small"), large = number("large");
  if (!small || !large) return std::nullopt;
  return *large - *small > margin;
}

}  // namespace

Result<std::vector<RouteExample>> read_route_examples(const std::string& file, double margin) {
  ASSIGN_OR_RETURN(FileDescriptor opened, open_regular_file(file));
  FileStream in(std::move(opened));
  std::vector<RouteExample> examples;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json line = bounded_json<Json>(text);
    if (!line.is_object())
      return errorf(ErrorCode::kInvalidArgument, "{}:{}: expected a JSON object", file, number);
    RouteExample example{question_in(line)};
    if (example.question.empty()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}:{}: expected prompt, a text, or messages with a user's text", file, number);
    }
    const auto label = label_in(line, margin);
    if (!label) {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}:{}: expected label, which is 0, 1, \"small\" or \"large\", or the numbers "
                    "small and large",
                    file, number);
    }
    example.needs_large = *label;
    examples.push_back(std::move(example));
  }
  return examples;
}

// Newton's method (iteratively reweighted least squares).
Result<RouteScore> RouteScore::train(std::span<const std::vector<float>> vectors,
                                     const std::vector<bool>& needs_large, double strength) {
  const auto n_large = std::ranges::count(needs_large, true);
  if (vectors.size() < 2 || n_large == 0 || n_large == static_cast<ptrdiff_t>(vectors.size())) {
    return errorf(ErrorCode::kInvalidArgument,
                  "expected examples that need the large model and others, got {} and {}", n_large,
                  static_cast<ptrdiff_t>(vectors.size()) - n_large);
  }
  const auto n = static_cast<Eigen::Index>(vectors.size());
  const auto d = static_cast<Eigen::Index>(vectors.front().size());
  Eigen::MatrixXd x(n, d + 1);
  Eigen::VectorXd y(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    const auto& vector = vectors[static_cast<size_t>(i)];
    for (Eigen::Index j = 0; j < d; ++j)
      x(i, j) = static_cast<double>(vector[static_cast<size_t>(j)]);
    x(i, d) = 1;
    y(i) = needs_large[static_cast<size_t>(i)] ? 1 : 0;
  }
  Eigen::VectorXd ridge = Eigen::VectorXd::Constant(d + 1, strength);
  ridge(d) = 1e-9;  // the bias is not penalized
  Eigen::VectorXd w = Eigen::VectorXd::Zero(d + 1);
  constexpr int kMostSteps = 50;
  for (int step = 0; step < kMostSteps; ++step) {
    const Eigen::VectorXd p = (x * w).unaryExpr([](double v) { return sigmoid(v); });
    const Eigen::VectorXd gradient = x.transpose() * (p - y) + ridge.cwiseProduct(w);
    const Eigen::VectorXd weight = p.cwiseProduct(Eigen::VectorXd::Ones(n) - p);
    Eigen::MatrixXd hessian = x.transpose() * (weight.asDiagonal() * x);
    hessian.diagonal() += ridge;
    const Eigen::VectorXd change = hessian.ldlt().solve(gradient);
    w -= change;
    if (!(change.norm() > 1e-8 * (1 + w.norm()))) break;
  }
  if (!w.allFinite())
    return errorf(ErrorCode::kInternal, "the weights do not settle: try a larger --ridge");
  RouteScore score;
  score.weights_.assign(w.data(), w.data() + d);
  score.bias_ = w(d);
  return score;
}

double RouteScore::operator()(std::span<const float> vector) const {
  double sum = bias_;
  for (size_t i = 0; i < weights_.size() && i < vector.size(); ++i)
    sum += weights_[i] * static_cast<double>(vector[i]);
  return sigmoid(sum);
}

Result<RouteScore> RouteScore::load(const std::string& file) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(file, kMostBytes));
  const Json fields = bounded_json<Json>(text);
  if (!fields.is_object() || fields.value("format", Json()) != kFormat)
    return errorf(ErrorCode::kCorruptFile, "{}: expected what `penstock route train` writes", file);
  if (fields.value("version", Json()) != 1)
    return errorf(ErrorCode::kUnsupported, "{}: expected version 1, got {}", file,
                  fields.value("version", Json()).dump());
  RouteScore score;
  const Json weights = fields.value("weights", Json()), bias = fields.value("bias", Json()),
             threshold = fields.value("threshold", Json());
  const bool numbers =
      weights.is_array() && !weights.empty() &&
      std::ranges::all_of(weights, [](const Json& one) { return one.is_number(); });
  if (!numbers || !bias.is_number() || !threshold.is_number())
    return errorf(ErrorCode::kCorruptFile, "{}: expected numbers: weights, bias, threshold", file);
  score.weights_ = weights.get<std::vector<double>>();
  score.bias_ = bias.get<double>();
  score.threshold = threshold.get<double>();
  const Json embedder = fields.value("embedder", Json());
  if (embedder.is_string()) score.embedder = embedder.get<std::string>();
  return score;
}

Status RouteScore::check_place(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) == 0) return {};
  if (begins_with(file, "{") && load(file)) return {};
  return errorf(ErrorCode::kInvalidArgument,
                "{}: not replaced: expected a route's score there, got another file", file);
}

Status RouteScore::save(const std::string& file) const {
  const Json fields = {{"format", kFormat},      {"version", 1},  {"embedder", embedder},
                       {"threshold", threshold}, {"bias", bias_}, {"weights", weights_}};
  RETURN_IF_ERROR(check_place(file));
  std::error_code error;
  // A device or a pipe is written to; a symbolic link stays one.
  const bool direct = fs::exists(file, error) && !fs::is_regular_file(file, error);
  const fs::path target = direct ? fs::path(file) : fs::weakly_canonical(file, error);
  if (error) return errorf(ErrorCode::kIo, "{}: {}", file, error.message());
  fs::path written = target;
  if (!direct) {
    written += ".partial";
    ASSIGN_OR_RETURN(const FileDescriptor fresh, create_fresh_file(written));
  }
  std::ofstream out(written, std::ios::binary);
  out << fields.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  out.close();
  const bool ok = !out.fail();
  if (ok && !direct) fs::rename(written, target, error);
  if (ok && !error) return {};
  std::error_code ignored;
  if (!direct) fs::remove(written, ignored);
  return errorf(ErrorCode::kIo, "{} cannot be written", file);
}

std::vector<RouteOutcome> route_outcomes(std::vector<std::pair<double, bool>> scored, int n_steps) {
  std::ranges::sort(scored, std::ranges::greater());
  const auto n = static_cast<double>(scored.size());
  const auto n_needing = std::ranges::count(scored, true, &std::pair<double, bool>::second);
  std::vector<RouteOutcome> outcomes;
  for (int step = n_steps; step >= 0; --step) {
    const auto k = static_cast<size_t>(std::lround(n * step / n_steps));
    RouteOutcome one;
    one.threshold = k == 0 ? 1.01 : scored[k - 1].first;
    const auto found = std::ranges::count_if(
        scored, [&](const auto& s) { return s.second && s.first >= one.threshold; });
    const auto large =
        std::ranges::count_if(scored, [&](const auto& s) { return s.first >= one.threshold; });
    one.to_large = static_cast<double>(large) / std::max(n, 1.0);
    one.found = n_needing == 0 ? 0 : static_cast<double>(found) / static_cast<double>(n_needing);
    outcomes.push_back(one);
  }
  return outcomes;
}

double route_auc(std::vector<std::pair<double, bool>> scored) {
  std::ranges::sort(scored);
  double n_below = 0, n_pairs = 0, n_small = 0, n_large = 0;
  for (size_t begin = 0; begin < scored.size();) {  // equal scores count half
    size_t end = begin;
    double small = 0, large = 0;
    for (; end < scored.size() && scored[end].first == scored[begin].first; ++end)
      (scored[end].second ? large : small) += 1;
    n_below += large * (n_small + small / 2);
    n_small += small, n_large += large;
    begin = end;
  }
  n_pairs = n_small * n_large;
  return n_pairs > 0 ? n_below / n_pairs : 0.5;
}

}  // namespace penstock
