// Medusa heads: the shipped ones score as recorded, the forward is the formula, and files that do
// not fit are refused with a message that says what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "formats/temp_dir.h"
#include "model/medusa_heads.h"
#include "model/runner.h"
#include "model/sources/synthetic.h"
#include "support/medusa_file.h"
#include "support/test_data.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Rows;
using testing::Runner;

const fs::path kHeads = models_dir() / "penstock-stories-15m-medusa";

struct Target {
  std::unique_ptr<Ops> ops = make_ops("cpu", {.n_threads = 1}).value();
  std::unique_ptr<WeightSource> source;
  std::unique_ptr<Model> model;

  explicit Target(std::unique_ptr<WeightSource> from) : source(std::move(from)) {
    model = Model::load(*source, *ops).value();
  }
  // Width 256, 512 tokens, random weights.
  static Target tiny() { return Target(make_synthetic_source("tiny", "f32").value()); }
};

Tensor to_tensor(const Rows& rows, Ops& ops) {
  const Tensor tensor =
      ops.new_tensor(static_cast<int>(rows.size()), static_cast<int>(rows[0].size()));
  for (size_t i = 0; i < rows.size(); ++i)
    ops.write_rows(rows[i], tensor.row_range(static_cast<int>(i), 1));
  return tensor;
}

std::string refusal(const MedusaFile& file, Target& target, size_t cut = 0) {
  const auto source = file.open(cut);
  if (!source) return source.error().message;
  const auto heads = MedusaHeads::load(**source, *target.model, *target.ops);
  return heads ? "accepted" : heads.error().message;
}

TEST(MedusaHeads, ForwardIsTheFormula) {
  Target target = Target::tiny();
  const int dim = 256, vocab = 512;
  for (const bool own_output : {false, true}) {
    for (const int n_layers : {1, 2}) {
      const MedusaFile file(2, n_layers, dim, own_output ? vocab : 0);
      const auto source = file.open().value();
      const auto heads = MedusaHeads::load(*source, *target.model, *target.ops).value();
      ASSERT_EQ(heads->n_heads(), 2);
      Runner runner(*target.model, *target.ops);
      runner.run(0, std::vector<int>{5, 9, 300});
      const Rows states = runner.hidden();
      target.ops->begin_step(nullptr);
      const Rows logits = Runner::rows_of(
          *target.ops, heads->forward(to_tensor(states, *target.ops), 2, *target.ops));
      ASSERT_EQ(logits.size(), 6u);
      const size_t per_head = static_cast<size_t>(2 * n_layers + (own_output ? 1 : 0));
      for (size_t k = 0; k < 2; ++k) {
        for (size_t row = 0; row < states.size(); ++row) {
          std::vector<double> x(states[row].begin(), states[row].end());
          for (int layer = 0; layer < n_layers; ++layer) {
            const size_t at = k * per_head + static_cast<size_t>(2 * layer);
            std::vector<double> update(x.size());
            for (int i = 0; i < dim; ++i) {
              double sum = MedusaFile::value(at + 1, i);
              for (int j = 0; j < dim; ++j)
                sum += MedusaFile::value(at, int64_t{i} * dim + j) * x[static_cast<size_t>(j)];
              update[static_cast<size_t>(i)] = sum / (1 + std::exp(-sum));
            }
            for (size_t i = 0; i < x.size(); ++i) x[i] += update[i];
          }
          Rows one = {std::vector<float>(x.begin(), x.end())};
          target.ops->begin_step(nullptr);
          const Tensor shared = target.ops->new_tensor(1, vocab);
          target.model->project(to_tensor(one, *target.ops), shared, *target.ops);
          const std::vector<float> shared_row = Runner::rows_of(*target.ops, shared)[0];
          double scale = 1e-3, worst = 0;
          for (int v = 0; v < vocab; ++v) {
            double expected = shared_row[static_cast<size_t>(v)];
            if (own_output) {
              expected = 0;
              for (int j = 0; j < dim; ++j)
                expected += MedusaFile::value(k * per_head + per_head - 1, int64_t{v} * dim + j) *
                            x[static_cast<size_t>(j)];
            }
            scale = std::max(scale, std::abs(expected));
            worst =
                std::max(worst, std::abs(expected - logits[k * 3 + row][static_cast<size_t>(v)]));
          }
          // Heads are kept in 8 bits, and so may activations be.
          EXPECT_LT(worst, 0.03 * scale) << own_output << " " << n_layers << " head " << k;
        }
      }
    }
  }
}

TEST(MedusaHeads, FewerHeadsGiveTheSameRows) {
  Target target = Target::tiny();
  const auto source = MedusaFile(3, 1, 256, 0).open().value();
  const auto heads = MedusaHeads::load(*source, *target.model, *target.ops).value();
  const Rows states(2, std::vector<float>(256, 0.5f));
  target.ops->begin_step(nullptr);
  const Rows all =
      Runner::rows_of(*target.ops, heads->forward(to_tensor(states, *target.ops), 3, *target.ops));
  target.ops->begin_step(nullptr);
  const Rows one =
      Runner::rows_of(*target.ops, heads->forward(to_tensor(states, *target.ops), 1, *target.ops));
  ASSERT_EQ(one.size(), 2u);
  ASSERT_EQ(all.size(), 6u);
  EXPECT_LT(testing::max_difference(one, {all[0], all[1]}), 1e-3f);
}

TEST(MedusaHeads, FilesThatDoNotFitAreRefused) {
  Target target = Target::tiny();
  EXPECT_EQ(refusal(MedusaFile(2, 1, 256, 0), target), "accepted");
  EXPECT_THAT(
      refusal(MedusaFile(2, 1, 512, 0), target),
      HasSubstr(
          "the target has width 256 and 512 tokens: expected shape [256, 256], got [512, 512]"));
  EXPECT_THAT(refusal(MedusaFile(2, 1, 256, 1000), target),
              HasSubstr("expected shape [512, 256], got [1000, 256]"));
  EXPECT_THAT(refusal(MedusaFile(2, 1, 256, 0), target, 100),
              HasSubstr("medusa_lm_head.safetensors"));

  MedusaFile file(2, 1, 256, 0);
  file.tensors.pop_back();
  EXPECT_THAT(refusal(file, target), HasSubstr("tensor 1.0.linear.bias is missing"));
  file = MedusaFile(2, 1, 256, 0);
  file.tensors.push_back({"2.0.linear.bias", {256}});
  EXPECT_THAT(refusal(file, target), HasSubstr("tensor 2.0.linear.bias: not expected"));
  for (const json& wrong : {json(0), json(17), json("four"), json(-1), json(1.5)}) {
    file = MedusaFile(2, 1, 256, 0);
    file.config["medusa_num_heads"] = wrong;
    EXPECT_THAT(refusal(file, target), HasSubstr("medusa_num_heads")) << wrong;
  }
  file = MedusaFile(2, 1, 256, 0);
  file.config.erase("medusa_num_heads");
  EXPECT_THAT(refusal(file, target), HasSubstr("medusa_num_heads"));
}

TEST(MedusaHeads, AccuracyIsReadOrRefused) {
  Target target = Target::tiny();
  MedusaFile file(2, 1, 256, 0);
  file.config["medusa_accuracy"] = {{0.5, 0.25}, {0.4}};
  const auto source = file.open().value();
  const auto heads = MedusaHeads::load(*source, *target.model, *target.ops).value();
  ASSERT_EQ(heads->accuracy().size(), 2u);
  EXPECT_THAT(heads->accuracy()[0], ::testing::ElementsAre(0.5f, 0.25f));
  for (const json& wrong :
       {json(1), json::array({0.5}), json::array({{0.5}, {0.7, 0.7}}), json::array({{0.5}, {1.5}}),
        json::array({{0.5}, {"x"}}), json::array({{0.5}, json::array()}), json::array({{0.5}})}) {
    file.config["medusa_accuracy"] = wrong;
    EXPECT_THAT(refusal(file, target), HasSubstr("medusa_accuracy: expected")) << wrong;
  }
}

// Every first byte of the header flipped or cut: an error or heads, never a crash.
TEST(MedusaHeads, DamagedFilesAreErrors) {
  Target target = Target::tiny();
  const MedusaFile file(1, 1, 256, 0);
  ASSERT_TRUE(file.open());
  const fs::path path = *file.directory / "medusa_lm_head.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::stringstream whole;
  whole << in.rdbuf();
  const std::string bytes = whole.str();
  int refused = 0;
  for (size_t i = 0; i < 180; ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 0x04 : 0x80));
    write_bytes(path, damaged);
    const auto source = open_weights(file.directory->path());
    if (!source || !MedusaHeads::load(**source, *target.model, *target.ops)) ++refused;
    write_bytes(path, bytes.substr(0, i * 7));
    EXPECT_FALSE(open_weights(file.directory->path())) << "cut to " << i * 7;
  }
  EXPECT_GT(refused, 150);
}

// Top-1 accuracy against the text's own tokens, as training/report.py measures it.
TEST(MedusaHeads, ShippedHeadsScoreAsRecorded) {
  std::ifstream eval_file(models_dir() / "eval.json");
  const json record = json::parse(eval_file).at("files").at("penstock-stories-15m-medusa");
  Target target(open_weights(models_dir() / "penstock-stories-15m-q8_0.gguf").value());
  const auto source = open_weights(kHeads);
  ASSERT_TRUE(source) << source.error().message;
  const auto heads = MedusaHeads::load(**source, *target.model, *target.ops);
  ASSERT_TRUE(heads) << heads.error().message;
  const size_t n_heads = static_cast<size_t>((*heads)->n_heads());
  std::vector<double> right(n_heads + 1), count(n_heads + 1);
  std::ifstream file(tests_dir() / "golden" / "heldout_tinystories.ids");
  const auto note = [&](size_t ahead, size_t position, const std::vector<int>& ids,
                        const std::vector<float>& row) {
    if (position + 1 + ahead >= ids.size()) return;
    right[ahead] += std::ranges::max_element(row) - row.begin() == ids[position + 1 + ahead];
    count[ahead] += 1;
  };
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<int> ids;
    for (int id = 0; words >> id;) ids.push_back(id);
    Runner runner(*target.model, *target.ops);
    const Rows logits = runner.run(0, ids);
    target.ops->begin_step(nullptr);
    const Rows ahead =
        Runner::rows_of(*target.ops, (*heads)->forward(to_tensor(runner.hidden(), *target.ops),
                                                       static_cast<int>(n_heads), *target.ops));
    for (size_t i = 0; i < ids.size(); ++i) {
      note(0, i, ids, logits[i]);
      for (size_t k = 0; k < n_heads; ++k) {
        note(k + 1, i, ids, ahead[k * ids.size() + i]);
      }
    }
  }
  for (size_t k = 0; k <= n_heads; ++k) {
    EXPECT_NEAR(right[k] / count[k],
                record.at("top1_accuracy").at(fmt::format("next+{}", k)).get<double>(), 0.005)
        << k;
  }
}

TEST(MedusaHeads, ShippedHeadsAreRefusedForAnotherModel) {
  Target draft(open_weights(models_dir() / "penstock-stories-1m-q8_0.gguf").value());
  const auto source = open_weights(kHeads).value();
  const auto heads = MedusaHeads::load(*source, *draft.model, *draft.ops);
  ASSERT_FALSE(heads);
  EXPECT_EQ(heads.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(heads.error().message, HasSubstr("the target has width 128"));
}

}  // namespace
}  // namespace penstock
