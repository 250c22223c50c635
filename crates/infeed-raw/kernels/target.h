/* The differences between a device and the host: names of types and address spaces, the entry of a
 * kernel, loads and stores of 16 bytes, and the arithmetic with guaranteed rounding.
 *
 * All other code is the same for both, so the tests on the host cover it. There are no includes:
 * clang needs no SDK for PTX, and the kernels need no library. */

#ifndef INFEED_TARGET_H
#define INFEED_TARGET_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

_Static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of integers");

/* Threads of a block. The same number is in src/kernel/operation.rs. */
#define BLOCK 256

/* Inlined at every call: constants of an entry are constants in all functions that it calls. */
#define INLINE static inline __attribute__((always_inline))

/* Precedes a loop over an array: unrolled, so that the array stays in registers. */
#ifdef __NVPTX__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

INLINE u32 bits_of(float value) {
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

#ifdef __NVPTX__

/* Memory of the device, so that loads and stores need not determine the address space. */
#define GLOBAL __attribute__((address_space(1)))

typedef u32 words __attribute__((ext_vector_type(4)));
typedef u32 pair __attribute__((ext_vector_type(2)));

#define KERNEL(name, type, call)                                                                   \
    __attribute__((device_kernel)) void infeed_##name(const type given) {                          \
        const type *const args = &given;                                                           \
        const u32 block = __nvvm_read_ptx_sreg_ctaid_x();                                          \
        const u32 thread = __nvvm_read_ptx_sreg_tid_x();                                           \
        call;                                                                                      \
    }

INLINE u32 load1(u64 at) { return *(const GLOBAL u8 *)at; }
/* Loads a signed number of 16 bits, extended by its sign. */
INLINE u32 load_i16(u64 at) { return (u32)(i32)*(const GLOBAL i16 *)at; }
INLINE u32 load4(u64 at) { return *(const GLOBAL u32 *)at; }
INLINE void load16(u64 at, u32 *to) {
    const words four = *(const GLOBAL words *)at;
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}
INLINE void load_pair(u64 at, u32 *to) {
    const pair two = *(const GLOBAL pair *)at;
    to[0] = two.x;
    to[1] = two.y;
}
INLINE u64 load8(u64 at) { return *(const GLOBAL u64 *)at; }

/* Returns four bytes of two adjacent words, from byte `first` on, which is below 4. */
INLINE u32 middle(u32 low, u32 high, u32 first) {
    u32 bytes;
    __asm__("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(8 * first));
    return bytes;
}

/* Loads `count` words from any address: words at multiples of 4 and a shift, instead of single
 * bytes. Bytes outside of `from..to` are unspecified. Reads only words of memory that contain a
 * byte of `from..to`; memory ends with a whole word, see `Context::memory`. */
INLINE void load_words(u64 at, u32 count, u64 from, u64 to, u32 *words) {
    const u32 first = (u32)at & 3;
    const u64 begin = at - first;
    u32 low = 0;
    UNROLL
    for (u32 n = 0; n <= count; n++) {
        const u64 word = begin + 4 * n;
        const u32 high = word < to && word + 4 > from ? load4(word) : 0;
        if (n > 0)
            words[n - 1] = middle(low, high, first);
        low = high;
    }
}

INLINE void store1(u64 at, u32 value) { *(GLOBAL u8 *)at = (u8)value; }
INLINE void store2(u64 at, u32 value) { *(GLOBAL u16 *)at = (u16)value; }
INLINE void store4(u64 at, u32 value) { *(GLOBAL u32 *)at = value; }
INLINE void store8(u64 at, u64 value) { *(GLOBAL u64 *)at = value; }
INLINE void store16(u64 at, const u32 *from) {
    *(GLOBAL words *)at = (words){from[0], from[1], from[2], from[3]};
}

/* Rounded separately with any assembler: it may fuse a `mul` without `.rn`. */
INLINE float product(float a, float b) { return __nvvm_mul_rn_f(a, b); }
INLINE float sum(float a, float b) { return __nvvm_add_rn_f(a, b); }

/* float16, rounded to nearest even. */
INLINE u32 half_of(float value) {
    u16 bits;
    __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#else

/* Runs a grid of threads as two loops. */
#define KERNEL(name, type, call)                                                                   \
    void infeed_run_##name(const type *args, u32 from, u32 to);                                    \
    void infeed_run_##name(const type *args, u32 from, u32 to) {                                   \
        for (u32 block = from; block < to; block++)                                                \
            for (u32 thread = 0; thread < BLOCK; thread++)                                         \
                call;                                                                              \
    }

/* Through memcpy, which accepts any alignment. */
#define AT(at) ((void *)(__UINTPTR_TYPE__)(at))

INLINE u32 load1(u64 at) { return *(const u8 *)AT(at); }
INLINE u32 load_i16(u64 at) {
    i16 value;
    __builtin_memcpy(&value, AT(at), 2);
    return (u32)(i32)value;
}
INLINE u32 load4(u64 at) {
    u32 value;
    __builtin_memcpy(&value, AT(at), 4);
    return value;
}
INLINE void load16(u64 at, u32 *to) { __builtin_memcpy(to, AT(at), 16); }
INLINE void load_pair(u64 at, u32 *to) { __builtin_memcpy(to, AT(at), 8); }
INLINE u64 load8(u64 at) {
    u64 value;
    __builtin_memcpy(&value, AT(at), 8);
    return value;
}

/* As on a device, in either byte order. */
INLINE u32 middle(u32 low, u32 high, u32 first) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (u32)(((u64)low << 32 | high) << 8 * first >> 32);
#else
    return (u32)(((u64)high << 32 | low) >> 8 * first);
#endif
}

/* As on a device, but reads nothing outside of `from..to`. */
INLINE void load_words(u64 at, u32 count, u64 from, u64 to, u32 *words) {
    const u64 begin = at < from ? from : at, end = at + 4 * count < to ? at + 4 * count : to;
    __builtin_memset(words, 0, 4 * count);
    __builtin_memcpy((u8 *)words + (begin - at), AT(begin), end - begin);
}

INLINE void store1(u64 at, u32 value) { *(u8 *)AT(at) = (u8)value; }
INLINE void store2(u64 at, u32 value) {
    const u16 half = (u16)value;
    __builtin_memcpy(AT(at), &half, 2);
}
INLINE void store4(u64 at, u32 value) { __builtin_memcpy(AT(at), &value, 4); }
INLINE void store8(u64 at, u64 value) { __builtin_memcpy(AT(at), &value, 8); }
INLINE void store16(u64 at, const u32 *from) { __builtin_memcpy(AT(at), from, 16); }

/* Rounded separately: compiled with -ffp-contract=off. */
INLINE float product(float a, float b) { return a * b; }
INLINE float sum(float a, float b) { return a + b; }

/* float16, rounded to nearest even, from a number that is not NaN.
 *
 * Normal results: adds half a unit of the 13 dropped bits, less one bit if the kept part is even.
 * The sum carries exactly if nearest-even rounds up, into the exponent if necessary. Smaller
 * results: the processor rounds the sum with 0.5, whose last bit is 2^-24, to multiples of 2^-24,
 * which are the denormal numbers of float16. */
INLINE u32 half_of(float value) {
    const u32 bits = bits_of(value);
    const u32 sign = bits >> 16 & 0x8000;
    const u32 size = bits & 0x7fffffff;
    if (size >= 0x47800000) /* 65536, infinity */
        return sign | 0x7c00;
    if (size >= 0x38800000) /* 2^-14, the smallest normal one */
        return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    float small;
    __builtin_memcpy(&small, &size, 4);
    return sign | (bits_of(small + 0.5f) - 0x3f000000);
}

#endif

/* bfloat16, rounded to nearest even, from a number that is not NaN. */
INLINE u32 brain_of(float value) {
    const u32 bits = bits_of(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Rounds two numbers to bfloat16. */
INLINE void two_brains_of(float first, float second, u32 *elements) {
#ifdef INFEED_SM80
    u32 both;
    __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    elements[0] = both & 0xffff;
    elements[1] = both >> 16;
#else
    elements[0] = brain_of(first);
    elements[1] = brain_of(second);
#endif
}

/* Shift of element `n` of a word, for elements of `bits` bits in memory order. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define SHIFT(n, bits) (32 - (bits) - (n) * (bits))
#else
#define SHIFT(n, bits) ((n) * (bits))
#endif

#endif
