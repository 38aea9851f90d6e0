#pragma once
// `data inspect --html`: one file with samples as the model sees them, readable on a phone.

#include <nlohmann/json.hpp>
#include <string>

#include "keyseat/interfaces/data.h"

namespace keyseat::tool {

class InspectPage {
 public:
  // Images are restored from patches, so that they are what the model gets: resized, normalised.
  InspectPage(const Data& data, const InputSpec& input) : data_(data), input_(input) {}

  void add(const Sample& sample);
  // The page; `report` is that of inspect_report(). Needs no network and no script.
  std::string html(const std::string& title, const nlohmann::json& report) const;

 private:
  std::string tokens_html(const Sample& sample) const;
  std::string images_html(const Sample& sample) const;

  const Data& data_;
  InputSpec input_;
  std::string cards_;
};

}  // namespace keyseat::tool
