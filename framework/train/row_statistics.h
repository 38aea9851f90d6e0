// What samples and images of a step are like, as histograms that add up over steps.
#pragma once

#include <cstdint>
#include <vector>

#include "keyseat/batch.h"
#include "train/histogram.h"

namespace keyseat::train {

struct RowStatistics {
  Histogram sample_tokens;      // useful tokens of each sample
  Histogram images_per_sample;  // videos count as images
  Histogram image_tokens;       // visual tokens of each image
  Histogram aspect_sixteenths;  // 16 * longer side / shorter side of each image
};

// Of the rows of this rank. `merge`: patches per side that become one visual token; 0 without
// vision.
RowStatistics row_statistics(const std::vector<Row>& rows, int64_t merge);

}  // namespace keyseat::train
