// Defaults of the sanitizers for everything the asan and tsan presets run, so that a test started
// by hand behaves as under tools/test. ASAN_OPTIONS and the like still override them.

#if defined(KEYSEAT_ASAN)
extern "C" __attribute__((visibility("default"), used)) const char* __asan_default_options() {
  // One-definition: torch-free code is linked into both bin/keyseat and libkeyseat.so on purpose.
  return "detect_odr_violation=0:strict_string_checks=1:detect_stack_use_after_return=0";
}

extern "C" __attribute__((visibility("default"), used)) const char* __lsan_default_suppressions() {
  // Gloo keeps the list of network interfaces where it refuses one.
  return "leak:gloo::transport::tcp::CreateDeviceAttr\n";
}

extern "C" __attribute__((visibility("default"), used)) const char* __ubsan_default_options() {
  return "print_stacktrace=1";
}
#endif

#if defined(KEYSEAT_TSAN)
extern "C" __attribute__((visibility("default"), used)) const char* __tsan_default_options() {
  return "second_deadlock_stack=1";
}

extern "C" __attribute__((visibility("default"), used)) const char* __tsan_default_suppressions() {
  // Neither LibTorch nor libgomp is instrumented, so their synchronisation is invisible.
  return "called_from_lib:libtorch_cpu.so\ncalled_from_lib:libgomp.so.1\nrace:libgomp\nrace:"
         "libtorch_cpu.so\n";
}
#endif
