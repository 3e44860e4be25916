#include "core/suggest.h"

#include <gtest/gtest.h>

namespace freeformer {
namespace {

const std::vector<std::string> kKnown = {"kind", "bits", "kappa_bits", "encoder"};

TEST(Suggest, NamesTheNearest) {
  EXPECT_EQ(suggest("bit", kKnown), "; did you mean \"bits\"?");         // one left out
  EXPECT_EQ(suggest("kinds", kKnown), "; did you mean \"kind\"?");       // one too many
  EXPECT_EQ(suggest("encodar", kKnown), "; did you mean \"encoder\"?");  // one wrong
  EXPECT_EQ(suggest("btis", kKnown), "; did you mean \"bits\"?");        // two swapped
  EXPECT_EQ(suggest("kapa_bit", kKnown), "; did you mean \"kappa_bits\"?");
}

TEST(Suggest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(suggest("temperature", kKnown), "");
  EXPECT_EQ(suggest("x", kKnown), "");
  EXPECT_EQ(suggest("bits", {}), "");
}

TEST(Suggest, LongNamesMayHaveMoreTypos) {
  const std::vector<std::string> known = {"num_hidden_layers"};
  EXPECT_EQ(suggest("nm_hiden_layer", known), "; did you mean \"num_hidden_layers\"?");
  // Three changes in a short name make another name.
  EXPECT_EQ(suggest("seed", {"sizes"}), "");
  EXPECT_EQ(suggest("seed", {"sees"}), "; did you mean \"sees\"?");
}

TEST(Suggest, TheFirstOfEquallyNearNamesWins) {
  EXPECT_EQ(suggest("cat", {"bat", "rat"}), "; did you mean \"bat\"?");
  EXPECT_EQ(suggest("rat", {"bat", "rat"}), "; did you mean \"rat\"?");
}

}  // namespace
}  // namespace freeformer
