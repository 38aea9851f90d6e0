// Packing: samples side by side in one flat row, the only layout there is.
#pragma once

#include <vector>

#include "keyseat/batch.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::data {

struct PackOptions {
  InputSpec input;
  // Row length to fill up to with a masked tail segment; 0: no tail. A row that is longer is left
  // as it is.
  int64_t pad_to = 0;
  bool all_logits = false;   // logit_rows = every real token (parity); else none
  bool last_logits = false;  // logit_rows = the last token of every sample (decoding)
};

// Samples in order; an empty list gives a row of zero tokens with all standard tensors. `failed`
// counts empty slots.
KEYSEAT_API Row pack(const std::vector<const Sample*>& samples, const PackOptions& options,
                     int64_t failed = 0);

}  // namespace keyseat::data
