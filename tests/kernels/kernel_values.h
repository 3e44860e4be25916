// Inputs and outputs of kernels that exist in fp32 and bf16, at addresses aligned to nothing, and
// their comparison with the float64 oracle.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/bfloat16.h"
#include "kernels/parallel.h"
#include "kernels/reference.h"
#include "random_values.h"

namespace freeformer::kernels {

// Lengths around every vector width and around four vectors of it.
inline std::vector<int64_t> row_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t length = 1; length <= 35; ++length) lengths.push_back(length);
  for (const int64_t length : {47, 48, 63, 64, 65, 67, 96, 131}) lengths.push_back(length);
  return lengths;
}

// Values of type T behind `offset` others.
template <typename T>
class Input {
 public:
  explicit Input(const std::vector<float>& values, int64_t offset = 0) : offset_(offset) {
    storage_.assign(size_t(offset), T());
    for (const float value : values) storage_.push_back(from_float<T>(value));
  }
  const T* data() const { return storage_.data() + offset_; }
  // What the kernel sees, for the oracle.
  reference::Vector wide() const {
    reference::Vector values;
    for (size_t i = size_t(offset_); i < storage_.size(); ++i) {
      values.push_back(to_float(storage_[i]));
    }
    return values;
  }

 private:
  int64_t offset_;
  std::vector<T> storage_;
};

// Room for `count` values of type T, with others around it that must stay as they are.
template <typename T>
class Output {
 public:
  explicit Output(int64_t count, int64_t offset = 0)
      : offset_(offset), storage_(size_t(count + offset + 1), from_float<T>(kGuard)) {}
  T* data() { return storage_.data() + offset_; }
  std::vector<float> values() const {
    EXPECT_EQ(to_float(storage_.back()), kGuard);
    for (int64_t i = 0; i < offset_; ++i) EXPECT_EQ(to_float(storage_[size_t(i)]), kGuard);
    std::vector<float> values;
    for (size_t i = size_t(offset_); i + 1 < storage_.size(); ++i) {
      values.push_back(to_float(storage_[i]));
    }
    return values;
  }

 private:
  static constexpr float kGuard = -7.0f;
  int64_t offset_;
  std::vector<T> storage_;
};

// Half a unit in the last place, relative: what a result may lose when it is stored.
template <typename T>
inline constexpr double kRounding = sizeof(T) == 2 ? 1.0 / 256 : 1.0 / (1 << 24);

// Each value apart: rounded to T once, and `tolerance` of error before that.
template <typename T>
void expect_near(const std::vector<float>& found, const reference::Vector& expected,
                 double tolerance, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance + kRounding<T> * std::abs(expected[i]))
        << what << " at " << i << " of " << found.size();
  }
}

// What body() returns is the same, bit for bit, for any number of threads.
template <typename Body>
void expect_same_for_any_thread_count(const Body& body) {
  const int before = thread_count();
  set_thread_count(1);
  const auto alone = body();
  for (const int threads : {2, 5}) {
    set_thread_count(threads);
    EXPECT_EQ(alone, body()) << threads << " threads";
  }
  set_thread_count(before);
}

// The derivative of loss() by each element of x, by central differences in float64.
template <typename Loss>
reference::Vector numeric_gradient(reference::Vector& x, const Loss& loss) {
  constexpr double kStep = 1e-5;
  reference::Vector gradient;
  for (double& element : x) {
    const double before = element;
    element = before + kStep;
    const double above = loss();
    element = before - kStep;
    const double below = loss();
    element = before;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

inline double dot(const reference::Vector& a, const reference::Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline reference::Vector random_doubles(int64_t count, float scale, uint64_t seed) {
  const auto values = random_floats(count, scale, seed);
  return {values.begin(), values.end()};
}

inline void expect_all_near(const reference::Vector& found, const reference::Vector& expected,
                            double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], tolerance) << i;
}

}  // namespace freeformer::kernels
