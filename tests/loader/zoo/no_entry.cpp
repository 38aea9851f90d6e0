// A manifest, but no entry.
#include "zoo/zoo.h"

ZOO_MANIFEST
