/* Pixels to elements: cast, scale, bias, layout and flips in one pass. */

#include "expand.h"

/* A selection and not an index: threads that read arguments at different positions are serialised.
 */
INLINE float factor(const float *of, u32 channel) {
    return channel == 0 ? of[0] : channel == 1 ? of[1] : channel == 2 ? of[2] : of[3];
}

/* Computes two adjacent elements from their bytes and factors. */
INLINE void two_elements(enum dtype dtype, u32 byte0, float scale0, float bias0, u32 byte1,
                         float scale1, float bias1, u32 *elements) {
    if (dtype == BF16) {
        two_brains_of(value_of(byte0, scale0, bias0), value_of(byte1, scale1, bias1), elements);
    } else {
        elements[0] = element_of(dtype, byte0, scale0, bias0);
        elements[1] = element_of(dtype, byte1, scale1, bias1);
    }
}

/* Loads the bytes of a unit of a mirrored line with 3 channels. The first is `channel` of the pixel
 * that ends at `end`. The pixels before that one follow, each with its channels in order. */
INLINE void load_mirrored(u64 end, u32 channel, u32 unit, u32 *to) {
    /* The largest number of pixels in a unit, and the number in this one. */
    const u32 most = (unit + 4) / 3, bytes = 3 * most, count = (bytes + 3) / 4;
    const u32 pixels = most - (channel + unit + 3 <= bytes);
    u32 forward[6], turned[6] = {0, 0, 0, 0, 0, 0};
    load_words(end - bytes, count, end - 3 * pixels, end, forward);
    UNROLL
    for (u32 n = 0; n < bytes; n++)
        turned[n / 4] |= byte_of(forward, bytes - 3 * (n / 3 + 1) + n % 3) << SHIFT(n % 4, 8);
    UNROLL
    for (u32 n = 0; n < unit / 4; n++)
        to[n] = middle(turned[n], turned[n + 1], channel);
}

/* To [height, width, channels]. A thread writes 16 bytes of the row, which may begin inside of a
 * pixel. */
INLINE void expand_hwc(const struct expand *args, u32 block, u32 thread, enum dtype dtype) {
    const struct rows *rows = &args->rows;
    const struct position position = position_of(rows, block, thread, dtype, 0);
    const u32 unit = UNIT(dtype);
    const struct part part = part_of(position.first, unit, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 channels = rows->group.by;
    const u32 first = (u32)(position.first + (i32)part.from);
    const u32 y = view.is_flat ? 0 : divide(first, &rows->line);
    const u32 at = first - y * rows->line.by;
    u32 channel = first - divide(first, &rows->group) * channels;
    const u64 line = line_at(rows, &view, y);

    const u64 to = position.output + (i64)position.first * BYTES(dtype);

    u32 bytes[4] = {0, 0, 0, 0}, elements[16];
    const int is_inside = part.from == 0 && part.to == unit &&
                          (view.is_flat || at + unit <= rows->line.by);
    if (is_inside && !view.flip_x)
        load(line + at, unit, bytes);
    if (is_inside && channels == 3) {
        /* The channels of all elements follow from that of the first, and so do their positions in
         * a mirrored line: the order of pixels is reversed, the order of channels is not. */
        const u32 second = channel == 2 ? 0 : channel + 1, third = channel == 0 ? 2 : channel - 1;
        const u32 order[3] = {channel, second, third};
        float scale[3], bias[3];
        UNROLL
        for (u32 n = 0; n < 3; n++) {
            scale[n] = factor(args->scale, order[n]);
            bias[n] = factor(args->bias, order[n]);
        }
        if (view.flip_x)
            load_mirrored(line + rows->line.by - (at - channel), channel, unit, bytes);
        UNROLL
        for (u32 n = 0; n < unit; n += 2) {
            const u32 even = n % 3, odd = (n + 1) % 3;
            two_elements(dtype, byte_of(bytes, n), scale[even], bias[even], byte_of(bytes, n + 1),
                         scale[odd], bias[odd], elements + n);
        }
        store(to, dtype, elements, 0, unit);
        return;
    }
    if (!is_inside || view.flip_x) {
        /* Element by element: the unit is at an end, or a line ends inside of it. */
        u32 in_line = at, of_pixel = channel, below = y;
        u64 from = line;
        UNROLL
        for (u32 n = 0; n < unit; n++) {
            if (n < part.from || n >= part.to)
                continue;
            const u32 x = view.flip_x ? rows->line.by - channels - in_line + 2 * of_pixel : in_line;
            bytes[n / 4] |= load1(from + x) << SHIFT(n % 4, 8);
            of_pixel = of_pixel + 1 == channels ? 0 : of_pixel + 1;
            in_line++;
            if (!view.is_flat && in_line == rows->line.by && n + 1 < part.to) {
                in_line = 0;
                below++;
                from = line_at(rows, &view, below);
            }
        }
    }
    UNROLL
    for (u32 n = 0; n < unit; n++) {
        elements[n] = element_of(dtype, byte_of(bytes, n), factor(args->scale, channel),
                                 factor(args->bias, channel));
        if (n >= part.from)
            channel = channel + 1 == channels ? 0 : channel + 1;
    }
    store(to, dtype, elements, part.from, part.to);
}

/* To [channels, height, width]. A thread writes 16 bytes of every plane, so that each byte of the
 * input is read once. */
INLINE void expand_chw(const struct expand *args, u32 block, u32 thread, enum dtype dtype) {
    const struct rows *rows = &args->rows;
    const struct position position = position_of(rows, block, thread, dtype, 1);
    const u32 unit = UNIT(dtype);
    const struct part part = part_of(position.first, unit, rows->count);
    if (part.from >= part.to)
        return;
    const struct view view = view_of(rows, position.row);
    const u32 channels = rows->pixel;
    const u64 plane = (u64)rows->count * BYTES(dtype);
    const u32 first = (u32)position.first;
    u64 to = position.output + first * (u64)BYTES(dtype);

    const struct run run = pixels_at(rows, &view, first, unit);
    if (channels == 3 && part.to == unit && run.at != 0) {
        u32 bytes[12], elements[16];
        load(run.at, 3 * unit, bytes);
        UNROLL
        for (u32 channel = 0; channel < 3; channel++, to += plane) {
            UNROLL
            for (u32 n = 0; n < unit; n += 2) {
                u32 two[2];
                UNROLL
                for (u32 m = 0; m < 2; m++) {
                    const u32 forward = byte_of(bytes, 3 * (n + m) + channel);
                    const u32 backward = byte_of(bytes, 3 * (unit - 1 - n - m) + channel);
                    two[m] = run.is_reversed ? backward : forward;
                }
                const float scale = args->scale[channel], bias = args->bias[channel];
                two_elements(dtype, two[0], scale, bias, two[1], scale, bias, elements + n);
            }
            store(to, dtype, elements, 0, unit);
        }
        return;
    }
    for (u32 n = 0; n < part.to; n++) {
        const u64 at = pixels_at(rows, &view, first + n, 1).at;
        for (u32 channel = 0; channel < channels; channel++) {
            /* An index, since all threads are at the same channel. */
            const u32 known = channel < 3 ? channel : 3;
            const float scale = args->scale[known], bias = args->bias[known];
            store_one(to + channel * plane + n * BYTES(dtype), dtype,
                      element_of(dtype, load1(at + channel), scale, bias));
        }
    }
}

/* Kernels whose rounding is an instruction of newer devices are compiled for these a second time.
 */
#ifndef INFEED_SM80
KERNEL(expand_u8_hwc, struct expand, expand_hwc(args, block, thread, U8))
KERNEL(expand_f32_hwc, struct expand, expand_hwc(args, block, thread, F32))
KERNEL(expand_f16_hwc, struct expand, expand_hwc(args, block, thread, F16))
KERNEL(expand_u8_chw, struct expand, expand_chw(args, block, thread, U8))
KERNEL(expand_f32_chw, struct expand, expand_chw(args, block, thread, F32))
KERNEL(expand_f16_chw, struct expand, expand_chw(args, block, thread, F16))
#endif
KERNEL(expand_bf16_hwc, struct expand, expand_hwc(args, block, thread, BF16))
KERNEL(expand_bf16_chw, struct expand, expand_chw(args, block, thread, BF16))
