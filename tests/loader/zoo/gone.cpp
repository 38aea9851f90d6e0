// The library that is not there any more when missing_dependency is loaded.
__attribute__((visibility("default"))) int keyseat_zoo_gone() { return 1; }
