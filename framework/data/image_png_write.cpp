// PNG files for pages that show what the model sees.

#include <png.h>

#include "keyseat/data/image.h"

namespace keyseat::data {

std::vector<uint8_t> encode_png(const Image& image) {
  png_image description = {};
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(description);
  std::vector<uint8_t> file(size);
  if (png_image_write_to_memory(&description, file.data(), &size, 0, image.rgb.data(), 0,
                                nullptr) == 0) {
    throw Error(Problem{
        Code::kR3Memory, {}, std::string("cannot write a PNG: ") + description.message, "", ""});
  }
  file.resize(size);
  return file;
}

}  // namespace keyseat::data
