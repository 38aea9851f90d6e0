// Layouts of strategy/three_d that are compared with one process, and on what.
#pragma once

#include <string>
#include <vector>

#include "tests/equivalence/cells.h"

namespace keyseat::test::three_d {

struct Layout {
  std::string name;
  int64_t world;
  testing::Values options;

  int64_t degree(const char* option) const;  // 1 where it is not given
};

struct Cell {
  Layout layout;
  DispatcherRow tokens = kLocal;
  std::vector<std::string> freeze = {};
  std::string model = "untied";  // or "tied", "dense", "dense text"
  int64_t micro_batches = 2;

  LayoutModel layout_model() const;
  LayoutChoice choice() const;
  StepShape shape() const;
  std::string oracle_key() const;  // cells of one key are compared with the same run
  std::string name() const;
};

testing::Values pipeline(int64_t stages, int64_t chunks = 1, int64_t expert = 1);

// Cuts inside the tower, between the deepstack mergers and the layers that read them.
extern const Layout kCutInside;
extern const Layout kPipelineData, kInterleaved;

// Pipeline stages, data and experts.
std::vector<Cell> pipeline_cells();
// Tensor, sequence, context and expert-tensor parallel, alone and together.
std::vector<Cell> tensor_cells();

}  // namespace keyseat::test::three_d
