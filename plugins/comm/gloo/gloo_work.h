// Operations of ProcessGroupGloo as Work: waits that can end early without breaking the group.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "keyseat/interfaces/comm.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace keyseat_comm_gloo {

// `finish` runs once, on the thread that waits, when the operation is done. `held` live until then.
std::unique_ptr<keyseat::Work> make_work(c10::intrusive_ptr<c10d::Work> work,
                                         std::function<void()> finish,
                                         std::vector<at::Tensor> held);

// A send or receive. Gloo breaks the group where the wait for one ends early, so a thread waits.
std::unique_ptr<keyseat::Work> make_message_work(c10::intrusive_ptr<c10d::Work> work,
                                                 at::Tensor held);

}  // namespace keyseat_comm_gloo
