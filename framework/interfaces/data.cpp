// Kind `data`: anchor, and what a source answers that has no answer of its own.
#include "keyseat/interfaces/data.h"

namespace keyseat {

Data::~Data() = default;

std::string Data::token_text(int64_t id) const { return decode({id}); }

int64_t Data::max_failed_samples() const { return std::numeric_limits<int64_t>::max(); }

std::vector<ShardIndex> Data::index() const { return {}; }

}  // namespace keyseat
