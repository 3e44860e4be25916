#include "model/weights.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "tensor_matchers.h"
#include "tiny_model.h"

namespace freeformer {
namespace {

TEST(Initialize, DependsOnTheSeedAlone) {
  const FreeTransformer a = tiny_model(tiny_config(4), 1), b = tiny_model(tiny_config(4), 1);
  const FreeTransformer c = tiny_model(tiny_config(4), 2);
  for (const auto& item : a->named_parameters()) {
    expect_identical(item.value(), b->named_parameters()[item.key()]);
    const bool is_norm = item.key().ends_with("norm.weight");
    EXPECT_EQ(at::equal(item.value(), c->named_parameters()[item.key()]), is_norm) << item.key();
  }
}

TEST(Initialize, DrawsNormalsOfTheConfiguredWidth) {
  ModelConfig config = tiny_config(10);
  config.initializer_range = 0.02;
  const FreeTransformer model = tiny_model(config);
  const Tensor table = model->model->latent->post_sampler->weight.detach();  // 12,288 numbers
  EXPECT_NEAR(table.mean().item<double>(), 0.0, 0.0006);
  EXPECT_NEAR(table.std().item<double>(), 0.02, 0.0005);
  EXPECT_GT(table.abs().max().item<double>(), 0.06);
  EXPECT_LT(table.abs().max().item<double>(), 0.12);
  expect_identical(model->model->norm->weight.detach(), at::ones({12}));
}

TEST(Weights, SavedAndLoadedAreTheSame) {
  const TemporaryFolder folder;
  for (const int bits : {0, 4}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      FreeTransformer saved = tiny_model(tiny_config(bits)), loaded(tiny_config(bits));
      saved->to(dtype);
      save_weights(saved, folder.path() / "checkpoint");
      const Checkpoint checkpoint(folder.path() / "checkpoint");
      EXPECT_EQ(checkpoint.config().torch_dtype, dtype == at::kFloat ? "float32" : "bfloat16");
      loaded->to(dtype);
      load_weights(loaded, checkpoint);
      for (const auto& item : saved->named_parameters()) {
        expect_identical(item.value(), loaded->named_parameters()[item.key()]);
      }
    }
  }
}

TEST(Weights, AreConvertedToTheModelsDtype) {
  const TemporaryFolder folder;
  FreeTransformer saved = tiny_model(tiny_config(0)), loaded(tiny_config(0));
  saved->to(at::kBFloat16);
  save_weights(saved, folder.path());
  load_weights(loaded, Checkpoint(folder.path()));
  expect_identical(loaded->lm_head->weight.detach(),
                   saved->lm_head->weight.detach().to(at::kFloat));
}

}  // namespace
}  // namespace freeformer
