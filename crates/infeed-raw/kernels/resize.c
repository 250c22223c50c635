/* Images of any size to elements of one size: resizes, then converts pixels as expand.c does.
 *
 * A pixel is two sums of products with rounded weights, along a column and then along the line,
 * each rounded to a byte. This is the integer arithmetic of the host's resizer, so the bits are the
 * same. Every pixel computes the sums of its columns again, twice for most columns. Threads that
 * share sums could save half of them, but all of them together cost less than the copy over the
 * bus. */

#include "expand.h"

/* Weights along one side of the output; see src/kernel/resize.rs. */
struct axis {
    /* Address of the numbers of the first contributing pixels, one for each pixel of the output. */
    u64 firsts;
    /* Address of the weights: `taps` for each pixel. */
    u64 weights;
    u32 taps;
    u32 precision;
};

INLINE struct axis axis_of(u64 table, u64 at, u32 count) {
    const u64 firsts = table + (u64)load4(at) * 4;
    const struct axis axis = {firsts, firsts + (u64)count * 4, load4(at + 4), load4(at + 8)};
    return axis;
}

/* Returns the address of the weights of pixel `n`. */
INLINE u64 weights_of(const struct axis *axis, u32 n) {
    return axis->weights + (u64)n * axis->taps * 2;
}

/* Rounds a sum that began with `half` to a byte. */
INLINE u32 half(u32 precision) { return 1u << (precision - 1); }
INLINE u32 rounded(u32 sum, u32 precision) {
    const i32 value = (i32)sum >> precision;
    return value < 0 ? 0 : value > 255 ? 255 : (u32)value;
}

/* Computes the bytes of one resized pixel. Sums wrap around, which only happens with weights that
 * no image needs. */
INLINE void pixel_of(const struct rows *rows, u32 row, u32 x, u32 y, u32 channels, u32 *bytes) {
    const u64 entry = rows->table + (u64)row * 48;
    const u32 row_bytes = load4(entry + 8), flags = load4(entry + 12);
    const struct axis columns = axis_of(rows->table, entry + 16, rows->width);
    const struct axis lines = axis_of(rows->table, entry + 32, rows->height);
    const u32 column = flags & 1 ? rows->width - 1 - x : x;
    const u32 line = flags & 2 ? rows->height - 1 - y : y;

    u64 top = rows->input + load8(entry);
    top += (u64)load4(lines.firsts + (u64)line * 4) * row_bytes;
    top += (u64)load4(columns.firsts + (u64)column * 4) * channels;
    const u64 across = weights_of(&columns, column), down = weights_of(&lines, line);

    u32 sums[4];
    UNROLL
    for (u32 c = 0; c < 4; c++)
        sums[c] = half(columns.precision);
    for (u32 i = 0; i < columns.taps; i++, top += channels) {
        u32 inner[4];
        UNROLL
        for (u32 c = 0; c < 4; c++)
            inner[c] = half(lines.precision);
        u64 from = top;
        for (u32 j = 0; j < lines.taps; j++, from += row_bytes) {
            const u32 weight = load_i16(down + 2 * (u64)j);
            UNROLL
            for (u32 c = 0; c < 4; c++)
                if (c < channels)
                    inner[c] += load1(from + c) * weight;
        }
        const u32 weight = load_i16(across + 2 * (u64)i);
        UNROLL
        for (u32 c = 0; c < 4; c++)
            sums[c] += rounded(inner[c], lines.precision) * weight;
    }
    UNROLL
    for (u32 c = 0; c < 4; c++)
        bytes[c] = rounded(sums[c], columns.precision);
}

/* A thread computes one pixel: neighbours share weights and lines, and the threads of a warp write
 * adjacent bytes. */
INLINE void resize(const struct expand *args, u32 block, u32 thread, enum dtype dtype,
                   int is_planar) {
    const struct rows *rows = &args->rows;
    const u32 row = divide(block, &rows->blocks);
    const u32 pixel = (block - row * rows->blocks.by) * BLOCK + thread;
    if (pixel >= rows->count)
        return;
    const u32 y = divide(pixel, &rows->line);
    const u32 x = pixel - y * rows->line.by;
    const u32 channels = rows->pixel;

    u32 bytes[4];
    if (channels == 3)
        pixel_of(rows, row, x, y, 3, bytes);
    else
        pixel_of(rows, row, x, y, channels, bytes);

    const u64 output = rows->output + row * rows->output_row;
    UNROLL
    for (u32 c = 0; c < 4; c++) {
        if (c >= channels)
            continue;
        const u64 at = is_planar ? (u64)c * rows->count + pixel : (u64)pixel * channels + c;
        store_one(output + at * BYTES(dtype), dtype,
                  element_of(dtype, bytes[c], args->scale[c], args->bias[c]));
    }
}

KERNEL(resize_u8_hwc, struct expand, resize(args, block, thread, U8, 0))
KERNEL(resize_f32_hwc, struct expand, resize(args, block, thread, F32, 0))
KERNEL(resize_f16_hwc, struct expand, resize(args, block, thread, F16, 0))
KERNEL(resize_bf16_hwc, struct expand, resize(args, block, thread, BF16, 0))
KERNEL(resize_u8_chw, struct expand, resize(args, block, thread, U8, 1))
KERNEL(resize_f32_chw, struct expand, resize(args, block, thread, F32, 1))
KERNEL(resize_f16_chw, struct expand, resize(args, block, thread, F16, 1))
KERNEL(resize_bf16_chw, struct expand, resize(args, block, thread, BF16, 1))
