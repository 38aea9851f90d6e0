// Loads; but its factory makes nothing.
#include "zoo/zoo.h"

ZOO_MANIFEST

ZOO_ENTRY {
  zoo::fill(table);
  return {};
}
