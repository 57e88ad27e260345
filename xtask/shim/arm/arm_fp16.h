// Empty on purpose: mlx-c includes the compiler's header of this name on ARM for `__fp16` alone, which is
// built in. libclang from a package registry comes without its headers, and GCC's do not parse in clang.
