#include "train/chain_layouts.h"

#include "train/conversion_unit.h"
#include "train/tensor_spec.h"

namespace keyseat {
namespace {

constexpr const char* kNotWritten =
    "the block is not written for context and tensor parallelism: only tensors with rows that a "
    "unit writes are converted";
constexpr const char* kUseAnother =
    "leave context and tensor at 1, or declare in the block which rows it works on "
    "(TensorSpec::layout)";

class LayoutPlan {
 public:
  LayoutPlan(const std::vector<PlacedUnit>& units, const std::vector<DerivedSpec>& derived,
             const Mesh& mesh, const RefuseUnit& refuse)
      : units_(units), derived_(derived), mesh_(mesh), refuse_(refuse), wanted_(units.size()) {
    for (size_t i = 0; i < units.size(); ++i) {
      const UnitSpec& spec = units[i].unit->spec();
      check_experts(units[i]);
      for (const TensorSpec& read : spec.reads) visit_read(units[i], read);
      for (const TensorSpec& write : spec.writes) {
        check_exists(units[i], write);
        latest_[write.name] = {i, &write};
      }
    }
  }

  // What stands behind a unit: tensors it writes, in other layouts.
  struct Wanted {
    TensorSpec from;
    Layout to;
  };
  const std::vector<Wanted>& behind(size_t unit) const { return wanted_[unit]; }

 private:
  struct Writer {
    size_t unit;
    const TensorSpec* spec;
  };

  std::string degrees_text() const {
    return fmt::format("context {}, tensor {}", mesh_.degree(Axis::kContext),
                       mesh_.degree(Axis::kTensor));
  }

  void visit_read(const PlacedUnit& reader, const TensorSpec& read) {
    if (!check_exists(reader, read)) return;
    const auto writer = latest_.find(read.name);
    if (writer != latest_.end()) {
      want(reader, read, writer->second);
    } else if (const BatchTensor* tensor = find_batch_tensor(read.name)) {
      TensorSpec given = read;
      given.layout = tensor->layout;
      if (!same_layout(read, given, mesh_)) refuse_read(reader, read, given.layout);
    } else {
      visit_derived(reader, read);
    }
  }

  void want(const PlacedUnit& reader, const TensorSpec& read, const Writer& writer) {
    const TensorSpec& written = *writer.spec;
    if (same_layout(read, written, mesh_)) return;
    const std::optional<int> dim = row_dimension(written);
    if (!dim || !has_layout(written.dims[static_cast<size_t>(*dim)].symbol, read.layout)) {
      refuse_read(reader, read, written.layout);
      return;
    }
    for (const Wanted& known : wanted_[writer.unit]) {
      TensorSpec other = known.from;
      other.layout = known.to;
      if (other.name == read.name && same_layout(other, read, mesh_)) return;
    }
    wanted_[writer.unit].push_back({written, read.layout});
  }

  // A derived tensor is as whole as what it is made from.
  void visit_derived(const PlacedUnit& reader, const TensorSpec& read) {
    for (const DerivedSpec& derived : derived_) {
      if (derived.tensor.name != read.name) continue;
      if (!same_layout(read, derived.tensor, mesh_))
        refuse_read(reader, read, derived.tensor.layout);
      if (derived.tensor.layout != Layout::kWhole) continue;
      for (const std::string& source : derived.reads) {
        const BatchTensor* tensor = find_batch_tensor(source);
        TensorSpec given = derived.tensor;
        if (tensor != nullptr) given.layout = tensor->layout;
        if (!same_layout(derived.tensor, given, mesh_)) refuse_read(reader, read, given.layout);
      }
    }
  }

  void refuse_read(const PlacedUnit& reader, const TensorSpec& read, Layout given) {
    refuse_(reader,
            fmt::format("reads {} of \"{}\", but under {} a rank has {}", layout_text(read.layout),
                        read.name, degrees_text(), layout_text(given)),
            kNotWritten, kUseAnother);
  }

  bool check_exists(const PlacedUnit& unit, const TensorSpec& spec) {
    const std::optional<int> dim = row_dimension(spec);
    if (!dim || has_layout(spec.dims[static_cast<size_t>(*dim)].symbol, spec.layout)) return true;
    refuse_(unit,
            fmt::format("declares \"{}\" {} in the layout \"{}\"", spec.name, shape_text(spec),
                        layout_text(spec.layout)),
            "T has rows, V rows and images, P and N images (keyseat/tensors.h)",
            "this is an error of the block plugin");
    return false;
  }

  void check_experts(const PlacedUnit& unit) {
    const UnitSpec& spec = unit.unit->spec();
    if (spec.top_k == 0 || spec.layout == Layout::kRows) return;
    refuse_(unit,
            fmt::format("sends {} to routed experts, which under {} several ranks have",
                        layout_text(spec.layout), degrees_text()),
            "every copy of a token would count in loads and gradients of the experts", kUseAnother);
  }

  const std::vector<PlacedUnit>& units_;
  const std::vector<DerivedSpec>& derived_;
  const Mesh& mesh_;
  const RefuseUnit& refuse_;
  std::vector<std::vector<Wanted>> wanted_;  // by writer
  std::map<std::string, Writer> latest_;
};

// "convert.NAME", with a number from the second one of the block on.
std::string conversion_name(const std::string& tensor, int block,
                            std::map<std::pair<int, std::string>, int>& used) {
  const int number = ++used[{block, tensor}];
  return "convert." + tensor + (number > 1 ? "." + std::to_string(number) : "");
}

}  // namespace

std::vector<PlacedUnit> add_conversions(std::vector<PlacedUnit> units,
                                        const std::vector<DerivedSpec>& derived, const Mesh& mesh,
                                        const RefuseUnit& refuse) {
  if (mesh.degree(Axis::kContext) * mesh.degree(Axis::kTensor) == 1) return units;
  const LayoutPlan plan(units, derived, mesh, refuse);
  std::map<std::pair<int, std::string>, int> used;
  std::vector<PlacedUnit> all;
  for (size_t i = 0; i < units.size(); ++i) {
    const int block = units[i].block;
    std::vector<PlacedUnit> conversions;
    for (const LayoutPlan::Wanted& wanted : plan.behind(i)) {
      PlacedUnit placed;
      placed.block = block;
      placed.unit = make_conversion(conversion_name(wanted.from.name, block, used),
                                    units[i].unit->spec(), wanted.from, wanted.to);
      placed.converts = true;
      conversions.push_back(std::move(placed));
    }
    all.push_back(std::move(units[i]));
    std::move(conversions.begin(), conversions.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace keyseat
