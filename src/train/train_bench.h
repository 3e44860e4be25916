// Times whole training steps on random tokens: forward, backward, clipping, AdamW.
#pragma once

#include "run/train_bench.h"

namespace freeformer {

TrainBenchResult bench_train(const TrainBenchRequest& request);

}  // namespace freeformer
