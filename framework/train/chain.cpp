#include "keyseat/chain.h"

#include "train/block_text.h"
#include "train/chain_layouts.h"
#include "train/conversion_unit.h"
#include "train/input_spec.h"
#include "train/tensor_spec.h"

namespace keyseat {

// Builds a chain step by step; every step adds its problems and leaves out what it cannot use.
class ChainBuilder {
 public:
  ChainBuilder(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze,
               Problems& problems, const Mesh& mesh)
      : freeze_(freeze), problems_(problems), mesh_(mesh) {
    chain_.blocks_ = std::move(blocks);
  }

  Chain build() {
    check_block_names();
    chain_.input_ = merge_input_specs(chain_.blocks_, problems_);
    collect_derived();
    collect_units();
    for (int unit = 0; unit < chain_.size(); ++unit) bind(unit);
    bind_tied();
    for (int unit = 0; unit < chain_.size(); ++unit) decide_gradients(unit);
    return std::move(chain_);
  }

 private:
  void refuse(const NamedBlock* block, std::string what, std::string why, std::string remedy) {
    problems_.push_back({Code::kC4Combination, block != nullptr ? block->where : SourcePosition{},
                         std::move(what), std::move(why), std::move(remedy)});
  }

  const NamedBlock* block_of(int unit) const {
    for (const NamedBlock& block : chain_.blocks_) {
      if (block.name == chain_.units_[unit].block) return &block;
    }
    return nullptr;
  }

  // "unit decoder.layers.3 (block/qwen3_moe)"
  std::string label(int unit) const {
    return fmt::format("unit {} ({})", chain_.units_[unit].name, block_of(unit)->plugin);
  }

  void check_block_names() {
    std::set<std::string> names;
    for (const NamedBlock& block : chain_.blocks_) {
      if (names.insert(block.name).second) continue;
      refuse(&block, fmt::format("two blocks are named \"{}\"", block.name),
             "names of blocks are prefixes of units, parameters and metrics", "rename one");
    }
    for (const std::string& name : freeze_) {
      if (names.contains(name)) continue;
      refuse(nullptr, fmt::format("model.freeze names \"{}\", which is no block", name),
             fmt::format("the blocks are {}", fmt::join(names, ", ")), "use the name of a block");
    }
  }

  void collect_derived() {
    for (const NamedBlock& block : chain_.blocks_) {
      for (DerivedSpec& derived : block.block->derived()) {
        const std::string& name = derived.tensor.name;
        if (find_batch_tensor(name) != nullptr) {
          refuse(&block,
                 fmt::format("block {} ({}) derives \"{}\", which is a tensor of the batch",
                             block.name, block.plugin, name),
                 "names have one origin", "rename the derived tensor");
          continue;
        }
        for (const std::string& read : derived.reads) {
          if (find_batch_tensor(read) != nullptr) continue;
          refuse(&block,
                 fmt::format("block {} ({}) derives \"{}\" from \"{}\", which is no tensor "
                             "of the batch",
                             block.name, block.plugin, name, read),
                 "derived tensors are functions of the batch", "");
        }
        const int known = find_derived(name);
        if (known < 0) {
          chain_.derived_.push_back(std::move(derived));
          continue;
        }
        const DerivedSpec& first = chain_.derived_[known];
        if (same_shape(first.tensor, derived.tensor) && first.reads == derived.reads) continue;
        refuse(
            &block,
            fmt::format("block {} ({}) derives \"{}\" as {}, an earlier block as {}", block.name,
                        block.plugin, name, shape_text(derived.tensor), shape_text(first.tensor)),
            "two blocks may share a derived tensor only with equal specs", "rename one");
      }
    }
    chain_.derived_reads_.resize(chain_.derived_.size());
  }

  int find_derived(const std::string& name) const {
    for (size_t i = 0; i < chain_.derived_.size(); ++i) {
      if (chain_.derived_[i].tensor.name == name) return static_cast<int>(i);
    }
    return -1;
  }

  void collect_units() {
    std::vector<PlacedUnit> units;
    for (size_t i = 0; i < chain_.blocks_.size(); ++i) {
      for (std::unique_ptr<Unit>& unit : chain_.blocks_[i].block->units()) {
        units.push_back({static_cast<int>(i), std::move(unit)});
      }
    }
    const RefuseUnit refuse_unit = [&](const PlacedUnit& unit, std::string what, std::string why,
                                       std::string remedy) {
      const NamedBlock& block = chain_.blocks_[unit.block];
      refuse(
          &block,
          fmt::format("unit {}.{} ({}) {}", block.name, unit.unit->spec().name, block.plugin, what),
          std::move(why), std::move(remedy));
    };
    std::set<std::string> names;
    for (PlacedUnit& placed : add_conversions(order_units(std::move(units), refuse_unit),
                                              chain_.derived_, mesh_, refuse_unit)) {
      const NamedBlock& block = chain_.blocks_[placed.block];
      ChainUnit unit;
      unit.block = block.name;
      unit.name = block.name + "." + placed.unit->spec().name;
      for (const ParamSpec& param : placed.unit->spec().params) {
        unit.param_names.push_back(unit.name + "." + param.name);
      }
      unit.trainable = !placed.unit->spec().params.empty() &&
                       std::find(freeze_.begin(), freeze_.end(), block.name) == freeze_.end();
      unit.unit = std::move(placed.unit);
      converts_.push_back(placed.converts);
      if (!names.insert(unit.name).second) {
        refuse(&block, fmt::format("two units are named \"{}\"", unit.name),
               "units are told apart by name", "");
      }
      chain_.units_.push_back(std::move(unit));
      check_own_names(chain_.size() - 1);
    }
  }

  void check_own_names(int index) {
    const UnitSpec& spec = chain_.units_[index].unit->spec();
    const auto unique = [&](const char* what, const auto& items) {
      std::set<std::string> names;
      for (const auto& item : items) {
        if (!names.insert(item.name).second) {
          refuse(block_of(index),
                 fmt::format("{} declares {} \"{}\" twice", label(index), what, item.name), "", "");
        }
      }
    };
    unique("the parameter", spec.params);
    unique("the read", spec.reads);
    unique("the write", spec.writes);
    for (const ParamSpec& param : spec.params) check_size(index, param);
  }

  // Elements and bytes of a model are counted in 64 bits.
  void check_size(int index, const ParamSpec& param) {
    constexpr double kMostElements = 0x1p44;
    double elements = 1;
    for (const int64_t size : param.shape) elements *= static_cast<double>(size);
    if (elements <= kMostElements) return;
    refuse(block_of(index),
           fmt::format("parameter \"{}\" of {} would have the shape [{}], {:.3g} elements",
                       param.name, label(index), fmt::join(param.shape, ", "), elements),
           fmt::format("a parameter has at most {:.3g}", kMostElements),
           "make the sizes in the options of the block smaller");
  }

  void bind(int index) {
    for (const TensorSpec& spec : chain_.units_[index].unit->spec().reads) {
      const int version = bind_read(index, spec);
      if (version < 0) continue;
      chain_.units_[index].reads.push_back(version);
      note_reader(version, index);
      const int derived = chain_.versions_[version].derived;
      if (derived < 0) continue;
      for (int batch : chain_.derived_reads_[derived]) note_reader(batch, index);
    }
    for (const TensorSpec& spec : chain_.units_[index].unit->spec().writes) {
      check_write(index, spec);
      Version version;
      version.name = spec.name;
      version.spec = spec;
      version.writer = index;
      const int added = add(std::move(version));
      chain_.units_[index].writes.push_back(added);
      if (converts_[static_cast<size_t>(index)]) {
        converted_[latest_.at(spec.name)].push_back(added);
      } else {
        latest_[spec.name] = added;
      }
    }
  }

  // The version itself, or that of a conversion behind its writer.
  int in_layout(int version, const TensorSpec& read) const {
    const auto fits_read = [&](int candidate) {
      return same_layout(chain_.versions_[candidate].spec, read, mesh_);
    };
    if (fits_read(version) || !converted_.contains(version)) return version;
    const std::vector<int>& others = converted_.at(version);
    const auto found = std::find_if(others.begin(), others.end(), fits_read);
    return found == others.end() ? version : *found;
  }

  int add(Version version) {
    chain_.versions_.push_back(std::move(version));
    return static_cast<int>(chain_.versions_.size()) - 1;
  }

  void note_reader(int version, int unit) {
    std::vector<int>& readers = chain_.versions_[version].readers;
    if (readers.empty() || readers.back() != unit) readers.push_back(unit);
  }

  // The version that the read is bound to, or -1 with a problem.
  int bind_read(int index, const TensorSpec& spec) {
    const auto known = latest_.find(spec.name);
    if (known != latest_.end()) {
      check_agreement(index, spec, chain_.versions_[known->second]);
      return in_layout(known->second, spec);
    }
    if (const BatchTensor* tensor = find_batch_tensor(spec.name)) {
      if (!fits(spec, *tensor)) {
        refuse(block_of(index),
               fmt::format("{} reads \"{}\" as {}, the batch has {} dimensions of {}", label(index),
                           spec.name, shape_text(spec), tensor->dims, c10::toString(tensor->dtype)),
               "", "declare the read as keyseat/batch.h gives it");
      }
      return batch_version(spec.name, spec);
    }
    const int derived = find_derived(spec.name);
    if (derived >= 0) return derived_version(index, spec, derived);
    refuse_unwritten(index, spec);
    return -1;
  }

  int batch_version(const std::string& name, const TensorSpec& spec) {
    Version version;
    version.name = name;
    version.spec = spec;
    return latest_[name] = add(std::move(version));
  }

  int derived_version(int index, const TensorSpec& spec, int derived) {
    Version version;
    version.name = spec.name;
    version.spec = chain_.derived_[derived].tensor;
    version.derived = derived;
    for (const std::string& read : chain_.derived_[derived].reads) {
      const BatchTensor* tensor = find_batch_tensor(read);
      if (tensor == nullptr) continue;  // refused by collect_derived
      const auto known = latest_.find(read);
      TensorSpec batch;
      batch.name = read;
      batch.dtype = tensor->dtype;
      chain_.derived_reads_[derived].push_back(known != latest_.end() ? known->second
                                                                      : batch_version(read, batch));
    }
    const int added = latest_[spec.name] = add(std::move(version));
    check_agreement(index, spec, chain_.versions_[added]);
    return added;
  }

  void refuse_unwritten(int index, const TensorSpec& spec) {
    std::string why =
        "a read is bound to the latest earlier write, to the batch or to a derived "
        "tensor";
    for (int later = index; later < chain_.size(); ++later) {
      for (const TensorSpec& write : chain_.units_[later].unit->spec().writes) {
        if (write.name == spec.name)
          why = fmt::format("{} writes it, but not before", label(later));
      }
    }
    refuse(block_of(index),
           fmt::format("{} reads \"{}\", which nothing before it writes", label(index), spec.name),
           why, "add the block that writes it, or change the order of the blocks");
  }

  void check_agreement(int reader, const TensorSpec& read, const Version& version) {
    // A batch tensor that an earlier unit read: each reader is compared with the batch itself.
    if (version.writer < 0 && version.derived < 0) {
      if (fits(read, *find_batch_tensor(read.name))) return;
    } else if (same_shape(read, version.spec)) {
      return;
    }
    const std::string writer =
        version.writer >= 0 ? fmt::format("{} of {} writes it", chain_.units_[version.writer].name,
                                          block_text(*block_of(version.writer)))
                            : std::string("it is made from the batch");
    refuse(block_of(reader),
           fmt::format("{} reads \"{}\" as {}, but {} as {}", label(reader), read.name,
                       shape_text(read), writer, shape_text(version.spec)),
           "writer and reader of a tensor have to agree in dimensions and dtype",
           "compare the sizes in the options of both blocks");
  }

  void check_write(int index, const TensorSpec& spec) {
    if (find_batch_tensor(spec.name) != nullptr || find_derived(spec.name) >= 0) {
      refuse(block_of(index),
             fmt::format("{} writes \"{}\", which is a tensor of the batch or derived from it",
                         label(index), spec.name),
             "those belong to the data source", "rename the write");
    }
    if (!spec.name.starts_with("loss.")) return;
    const std::set<std::string> normalisers{"supervised", "tokens", "images", "one"};
    TensorSpec expected;
    expected.dims = {Dim(1)};
    expected.dtype = at::kFloat;
    if (!same_shape(spec, expected) || !normalisers.contains(spec.normaliser)) {
      refuse(block_of(index),
             fmt::format("{} writes \"{}\" as {} with normaliser \"{}\"", label(index), spec.name,
                         shape_text(spec), spec.normaliser),
             fmt::format("a loss is the local sum, [1] Float, divided by one of {}",
                         fmt::join(normalisers, ", ")),
             "");
    }
  }

  void bind_tied() {
    std::map<std::string, ParamRef> groups;
    for (int index = 0; index < chain_.size(); ++index) {
      ChainUnit& unit = chain_.units_[index];
      const std::vector<ParamSpec>& params = unit.unit->spec().params;
      for (int i = 0; i < static_cast<int>(params.size()); ++i) {
        ParamRef owner{index, i};
        if (!params[i].tie.empty()) owner = groups.try_emplace(params[i].tie, owner).first->second;
        unit.owners.push_back(owner);
        check_tied(index, i, owner);
      }
    }
  }

  void check_tied(int index, int param, ParamRef owner) {
    const ChainUnit& unit = chain_.units_[index];
    const ChainUnit& first = chain_.units_[owner.unit];
    const ParamSpec& a = unit.unit->spec().params[param];
    const ParamSpec& b = first.unit->spec().params[owner.param];
    const std::string names =
        fmt::format("{} and {} are tied (\"{}\")", first.param_names[owner.param],
                    unit.param_names[param], a.tie);
    if (a.shape != b.shape || a.domain != b.domain || a.keep_fp32 != b.keep_fp32) {
      refuse(block_of(index),
             fmt::format("{} but have shapes [{}] and [{}], or another domain or dtype", names,
                         fmt::join(b.shape, ", "), fmt::join(a.shape, ", ")),
             "a tie group is one parameter with one memory", "");
    }
    if (unit.trainable != first.trainable) {
      refuse(block_of(index), fmt::format("{} but only one of their blocks is frozen", names),
             "a tie group is one parameter: trained or not", "freeze both blocks or neither");
    }
  }

  void decide_gradients(int index) {
    ChainUnit& unit = chain_.units_[index];
    const UnitSpec& spec = unit.unit->spec();
    bool carries = unit.trainable;
    for (size_t i = 0; i < unit.reads.size() && unit.reads.size() == spec.reads.size(); ++i) {
      carries |= chain_.versions_[unit.reads[i]].needs_grad && spec.reads[i].differentiable;
    }
    for (int write : unit.writes) {
      Version& version = chain_.versions_[write];
      version.needs_grad = carries && version.spec.differentiable;
      unit.runs_backward |= version.needs_grad;
    }
  }

  const std::vector<std::string>& freeze_;
  Problems& problems_;
  const Mesh& mesh_;
  Chain chain_;
  std::vector<bool> converts_;         // by unit: it only changes the layout of what it reads
  std::map<std::string, int> latest_;  // by name: the version a read would be bound to
  std::map<int, std::vector<int>> converted_;  // by version: the same in other layouts
};

Chain Chain::build(std::vector<NamedBlock> blocks, const std::vector<std::string>& freeze,
                   Problems& problems, const Mesh& mesh) {
  return ChainBuilder(std::move(blocks), freeze, problems, mesh).build();
}

}  // namespace keyseat
