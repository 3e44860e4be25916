// Attention against the oracle, which asks of every pair of positions whether they see each other.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <thread>

#include "isa_test.h"
#include "kernel_values.h"
#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

struct Case {
  AttentionShape shape;
  bool causal = true;
  // Lengths of documents, again and again until the sequence is full; every further sequence begins
  // with the next of them.
  std::vector<int64_t> documents = {};
  float scale = 1;  // of queries and keys
};

std::vector<int64_t> document_ids(const Case& c) {
  std::vector<int64_t> ids;
  if (c.documents.empty()) return ids;
  for (int64_t b = 0; b < c.shape.B; ++b) {
    std::vector<int64_t> row;
    for (size_t i = size_t(b); int64_t(row.size()) < c.shape.S; ++i) {
      row.insert(row.end(), size_t(c.documents[i % c.documents.size()]), int64_t(i));
    }
    ids.insert(ids.end(), row.begin(), row.begin() + c.shape.S);
  }
  return ids;
}

std::vector<KeyRange> ranges_of(const Case& c) {
  const auto ids = document_ids(c);
  return key_ranges(c.shape, c.causal, ids.empty() ? nullptr : ids.data());
}

std::string describe(const Case& c) {
  const auto& [B, T, S, N, K, H] = c.shape;
  return fmt::format("B={} T={} S={} N={} K={} H={}{}{}", B, T, S, N, K, H,
                     c.causal ? " causal" : "", c.documents.empty() ? "" : " documents");
}

template <typename T>
struct Computed {
  explicit Computed(const Case& c, int64_t offset = 0)
      : Computed(c, random_floats(c.shape.B * c.shape.T * c.shape.N * c.shape.H, c.scale, 1),
                 random_floats(c.shape.B * c.shape.S * c.shape.K * c.shape.H, c.scale, 2), offset) {
  }

  Computed(const Case& c, const std::vector<float>& queries, const std::vector<float>& keys,
           int64_t offset = 0)
      : q(queries, offset),
        k(keys, offset),
        v(random_floats(int64_t(keys.size()), 1, 3), offset),
        dout(random_floats(int64_t(queries.size()), 1, 4), offset),
        out(int64_t(queries.size()), offset),
        dq(int64_t(queries.size()), offset),
        dk(int64_t(keys.size()), offset),
        dv(int64_t(keys.size()), offset),
        lse(c.shape.B * c.shape.N * c.shape.T, offset) {
    const auto ranges = ranges_of(c);
    attention(c.shape, ranges.data(), q.data(), k.data(), v.data(), out.data(), lse.data());
    attention_backward(c.shape, ranges.data(), q.data(), k.data(), v.data(), out.data(), lse.data(),
                       dout.data(), dq.data(), dk.data(), dv.data());
  }

  std::vector<std::vector<float>> results() const {
    return {out.values(), lse.values(), dq.values(), dk.values(), dv.values()};
  }

  Input<T> q, k, v, dout;
  Output<T> out, dq, dk, dv;
  Output<float> lse;
};

double largest(const reference::Vector& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// `tolerance` is relative to the largest element of each tensor; gradients that cancel are not 0.
template <typename T>
void expect_matches(const Case& c, const Computed<T>& run, double tolerance) {
  const auto ids = document_ids(c);
  const auto forward =
      reference::attention(c.shape, c.causal, ids, run.q.wide(), run.k.wide(), run.v.wide());
  const auto out = run.out.values();
  const auto backward = reference::attention_backward(
      c.shape, c.causal, ids, run.q.wide(), run.k.wide(), run.v.wide(),
      reference::Vector(out.begin(), out.end()), run.dout.wide());
  const auto expect = [&]<typename U>(const Output<U>& found, const reference::Vector& expected,
                                      const char* what) {
    expect_near<U>(found.values(), expected, tolerance * (0.1 + largest(expected)), what);
  };
  expect(run.out, forward.out_BTNH, "out");
  expect(run.lse, forward.lse_BNT, "lse");
  expect(run.dq, backward.dq_BTNH, "dq");
  expect(run.dk, backward.dk_BSKH, "dk");
  expect(run.dv, backward.dv_BSKH, "dv");
}

void expect_matches(const Case& c) {
  SCOPED_TRACE(describe(c));
  expect_matches(c, Computed<float>(c), 3e-6);
  expect_matches(c, Computed<BFloat16>(c, 1), 3e-6);
}

// On one thread: waking others takes longer than these sizes.
class Attention : public IsaTest {
 protected:
  const OneThread one_thread_;
};

TEST_P(Attention, MatchesTheReferenceForAnyHeadSize) {
  for (const int64_t H : {1, 3, 8, 16, 20, 64, 80}) {
    expect_matches({{2, 7, 7, 2, 1, H}});
    expect_matches({{1, 19, 19, 1, 1, H}, /*causal=*/false});
  }
}

TEST_P(Attention, MatchesTheReferenceForLengthsAroundTheBlocks) {
  for (const int64_t T : {1, 2, 15, 16, 17, 47, 48, 49}) {
    expect_matches({{2, T, T, 1, 1, 8}});
    expect_matches({{1, T, T, 2, 2, 3}, /*causal=*/false});
  }
  for (const int64_t T : {95, 96, 97, 127, 128, 129}) {
    expect_matches({{1, T, T, 1, 1, 3}, /*causal=*/T % 2 == 0});
  }
  expect_matches({{1, 200, 200, 1, 1, 16}});
  expect_matches({{1, 200, 200, 1, 1, 1}, /*causal=*/false});
  expect_matches({{1, 257, 257, 1, 1, 3}});
}

TEST_P(Attention, QueryHeadsShareAKeyValueHead) {
  for (const int64_t K : {4, 2, 1}) {
    expect_matches({{2, 50, 50, 4, K, 8}});
    expect_matches({{1, 20, 20, 4, K, 20}, /*causal=*/false});
  }
  expect_matches({{1, 130, 130, 4, 2, 3}});
}

TEST_P(Attention, QueriesAreTheLastPositionsWhereThereAreMoreKeys) {
  expect_matches({{2, 1, 2, 2, 1, 8}});
  expect_matches({{1, 1, 130, 4, 2, 16}});
  expect_matches({{2, 3, 129, 2, 2, 3}});
  expect_matches({{1, 49, 177, 2, 1, 8}});
  expect_matches({{1, 48, 256, 1, 1, 3}, /*causal=*/false});
  expect_matches({{1, 5, 140, 1, 1, 8}, /*causal=*/true, {100}});  // begins before the queries
}

TEST_P(Attention, SeesOnlyTheOwnDocument) {
  for (const bool causal : {true, false}) {
    expect_matches({{2, 50, 50, 2, 1, 8}, causal, {1}});  // everybody alone
    expect_matches({{2, 9, 9, 2, 1, 3}, causal, {1, 2, 3}});
    // Documents that end where a block of queries (48) or keys (128) does, and next to it.
    expect_matches({{1, 200, 200, 1, 1, 3}, causal, {47, 1, 48, 32, 72}});
    expect_matches({{2, 150, 150, 1, 1, 3}, causal, {49, 1, 77, 1, 1, 21}});
    expect_matches({{1, 260, 260, 1, 1, 1}, causal, {128, 127, 2}});
  }
}

// Scores of ±100: all but the largest vanish, and e^100 is no float.
TEST_P(Attention, LargeScoresNeitherOverflowNorVanish) {
  constexpr int64_t T = 140, H = 16;
  const Case c{{1, T, T, 1, 1, H}};
  // Rising, falling and mixed along the keys: the running maximum changes at any time, or never.
  const auto sign_of = [](int order, int64_t s) {
    return order == 0   ? (s < 130 ? -1 : 1)
           : order == 1 ? (s < 3 ? 1 : -1)
                        : (s * s % 7 < 3 ? 1 : -1);
  };
  const auto noise = random_floats(T * H, 0.01f, 9);
  for (const int order : {0, 1, 2}) {
    std::vector<float> q, k;
    for (int64_t i = 0; i < T * H; ++i) {
      const float pattern = i % H * 5 % 3 == 0 ? -5.0f : 5.0f;  // 16 · 25 / sqrt(16) = 100
      q.push_back(pattern);
      k.push_back(float(sign_of(order, i / H)) * pattern + noise[size_t(i)]);
    }
    SCOPED_TRACE(order);
    const Computed<float> wide(c, q, k);
    expect_matches(c, wide, 5e-4);  // scores have an error of 1e-5, and keys are 5: dq cancels
    expect_matches(c, Computed<BFloat16>(c, q, k), 5e-4);
    EXPECT_NEAR(std::abs(wide.lse.values()[0]), 100, 1);
  }
}

TEST_P(Attention, LargeRandomScoresMatchTheReference) {
  const Case c{{1, 60, 60, 2, 1, 20}, /*causal=*/true, {}, /*scale=*/8};
  expect_matches(c, Computed<float>(c), 1e-4);
}

TEST_P(Attention, ANaNInAQueryStaysInItsRow) {
  constexpr int64_t T = 60, H = 5;
  const Case c{{1, T, T, 1, 1, H}};
  auto q = random_floats(T * H, 1, 1);
  q[17 * H + 2] = NAN;
  const Computed<float> run(c, q, random_floats(T * H, 1, 2));
  const auto out = run.out.values();
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::isnan(out[i]), i / H == 17) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Attention, testing::ValuesIn(supported_isas()), isa_name);

TEST(Attention, IsTheSameForAnyNumberOfThreads) {
  const Case c{{2, 140, 140, 4, 2, 8}, /*causal=*/true, {70, 3}};
  expect_same_for_any_thread_count([&] { return Computed<float>(c).results(); });
  expect_same_for_any_thread_count([&] { return Computed<BFloat16>(c).results(); });
}

// In a thread of its own, whose workspace nobody has used.
TEST(Attention, MemoryIsLinearInTheLength) {
  constexpr int64_t T = 4096, H = 16;
  const int before = thread_count();
  set_thread_count(1);
  std::thread([] {
    // Short documents: time is linear, too.
    Case c{{1, T, T, 1, 1, H}, /*causal=*/true, {100}};
    const Computed<float> run(c);
    EXPECT_GT(Workspace::capacity_bytes(), T * H * int64_t(sizeof(float)));
    EXPECT_LT(Workspace::capacity_bytes(), T * T * int64_t(sizeof(float)) / 4);
    EXPECT_TRUE(std::isfinite(run.dq.values().back()));
  }).join();
  set_thread_count(before);
}

TEST(Attention, WithoutQueriesKeysHaveNoGradient) {
  const Case c{{1, 0, 5, 2, 1, 3}};
  const Computed<float> run(c);
  EXPECT_EQ(run.dk.values(), std::vector<float>(15, 0.0f));
  EXPECT_EQ(run.dv.values(), std::vector<float>(15, 0.0f));
}

TEST(Attention, ReferenceGradientsAreThoseOfFiniteDifferences) {
  for (const Case& c : {Case{{2, 3, 5, 4, 2, 3}}, Case{{1, 5, 5, 2, 1, 2}, /*causal=*/false, {2}},
                        Case{{1, 6, 6, 1, 1, 1}, /*causal=*/true, {1, 3}}}) {
    SCOPED_TRACE(describe(c));
    const auto& [B, T, S, N, K, H] = c.shape;
    auto q = random_doubles(B * T * N * H, 1, 1), k = random_doubles(B * S * K * H, 1, 2),
         v = random_doubles(B * S * K * H, 1, 3);
    const auto dout = random_doubles(B * T * N * H, 1, 4);
    const auto ids = document_ids(c);
    const auto out = [&] { return reference::attention(c.shape, c.causal, ids, q, k, v).out_BTNH; };
    const auto loss = [&] { return dot(out(), dout); };
    const auto found = reference::attention_backward(c.shape, c.causal, ids, q, k, v, out(), dout);
    expect_all_near(found.dq_BTNH, numeric_gradient(q, loss), 1e-8);
    expect_all_near(found.dk_BSKH, numeric_gradient(k, loss), 1e-8);
    expect_all_near(found.dv_BSKH, numeric_gradient(v, loss), 1e-8);
  }
}

TEST(Attention, ReferenceOfOneKeyIsItsValueAndOfEqualKeysTheirMean) {
  const AttentionShape shape{1, 2, 2, 1, 1, 1};
  const auto found = reference::attention(shape, true, {}, {3, 2}, {0, 0}, {5, 7});
  expect_all_near(found.out_BTNH, {5, 6}, 1e-12);
  expect_all_near(found.lse_BNT, {0, std::log(2.0)}, 1e-12);
}

// --- key_ranges ----------------------------------------------------------------------------------

std::vector<std::pair<int, int>> pairs(const std::vector<KeyRange>& ranges) {
  std::vector<std::pair<int, int>> result;
  for (const KeyRange& range : ranges) result.emplace_back(range.begin, range.end);
  return result;
}
using Pairs = std::vector<std::pair<int, int>>;

TEST(KeyRanges, CausalQueriesSeeUpToThemselves) {
  EXPECT_EQ(pairs(key_ranges({1, 3, 3, 1, 1, 1}, true, nullptr)), (Pairs{{0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(pairs(key_ranges({2, 2, 5, 1, 1, 1}, true, nullptr)),
            (Pairs{{0, 4}, {0, 5}, {0, 4}, {0, 5}}));
}

TEST(KeyRanges, OthersSeeEverything) {
  EXPECT_EQ(pairs(key_ranges({1, 2, 4, 1, 1, 1}, false, nullptr)), (Pairs{{0, 4}, {0, 4}}));
}

TEST(KeyRanges, AreWithinTheDocumentOfEachSequence) {
  const std::vector<int64_t> documents = {7, 7, 8, 9, 9, 1, 2, 2, 2, 2};
  const AttentionShape shape{2, 5, 5, 1, 1, 1};
  EXPECT_EQ(
      pairs(key_ranges(shape, false, documents.data())),
      (Pairs{{0, 2}, {0, 2}, {2, 3}, {3, 5}, {3, 5}, {0, 1}, {1, 5}, {1, 5}, {1, 5}, {1, 5}}));
  EXPECT_EQ(
      pairs(key_ranges(shape, true, documents.data())),
      (Pairs{{0, 1}, {0, 2}, {2, 3}, {3, 4}, {3, 5}, {0, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}}));
}

TEST(KeyRanges, ADocumentMayBeginBeforeTheFirstQuery) {
  const std::vector<int64_t> documents = {0, 1, 1, 1, 2, 2};
  const AttentionShape shape{1, 3, 6, 1, 1, 1};
  EXPECT_EQ(pairs(key_ranges(shape, true, documents.data())), (Pairs{{1, 4}, {4, 5}, {4, 6}}));
  EXPECT_EQ(pairs(key_ranges(shape, false, documents.data())), (Pairs{{1, 4}, {4, 6}, {4, 6}}));
}

}  // namespace
}  // namespace freeformer::kernels
