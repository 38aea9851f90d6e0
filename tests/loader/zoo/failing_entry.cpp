// Returns an error with a text.
#include "zoo/zoo.h"

ZOO_MANIFEST

ZOO_ENTRY {
  zoo::fill(table);
  return {false, "no device of the right kind"};
}
