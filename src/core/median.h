#pragma once

#include <algorithm>
#include <vector>

namespace freeformer {

// Of at least one value; of an even number, the mean of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace freeformer
