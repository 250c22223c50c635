/* Decodes JPEG pixels from coefficients that the caller supplies, and reads the coefficients of a
 * JPEG file, with libjpeg-turbo.
 *
 * libjpeg-turbo has no public function that decodes pixels from coefficients. It calls the entropy
 * decoder through a function pointer, once per MCU. `infeed_coefficients_decode` replaces that
 * pointer after `jpeg_start_decompress`, so that dequantisation, inverse DCT, upsampling, colour
 * conversion and cropping remain those of libjpeg-turbo, and so do the pixels.
 *
 * Errors of libjpeg return here with longjmp. No frame of another language lies between: the
 * callbacks of the caller call nothing of libjpeg. */

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

/* The first members of a private structure of libjpeg-turbo 3 (src/jpegint.h). */
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW *);
};

enum { MESSAGE = JMSG_LENGTH_MAX };

struct failure {
  struct jpeg_error_mgr manager;
  jmp_buf target;
  char *message;
};

struct progress {
  struct jpeg_progress_mgr manager;
  int max_scans;
};

static void fail(j_common_ptr info) {
  struct failure *failure = (struct failure *)info->err;
  failure->manager.format_message(info, failure->message);
  longjmp(failure->target, 1);
}

/* Warnings are errors: a file that libjpeg has to repair keeps its own bytes. */
static void fail_on_warning(j_common_ptr info, int level) {
  if (level < 0)
    fail(info);
}

static void limit_scans(j_common_ptr info) {
  struct progress *progress = (struct progress *)info->progress;
  if (info->is_decompressor && ((j_decompress_ptr)info)->input_scan_number > progress->max_scans) {
    struct failure *failure = (struct failure *)info->err;
    snprintf(failure->message, MESSAGE, "more than %d scans", progress->max_scans);
    longjmp(failure->target, 1);
  }
}

static void begin(struct failure *failure, struct jpeg_decompress_struct *info, char *message) {
  info->err = jpeg_std_error(&failure->manager);
  failure->manager.error_exit = fail;
  failure->manager.emit_message = fail_on_warning;
  failure->message = message;
  message[0] = 0;
}

/* Fills `blocks` consecutive blocks of 64 coefficients in row order, or skips them if `out` is
 * null. */
typedef void (*fill_mcu)(void *source, int16_t *out, int blocks);

struct request {
  int width, height;           /* the whole image, as the caller read it */
  int eighths;                 /* scale: 1, 2, 4 or 8 */
  int top, left, rows, columns; /* window of the scaled image */
  int colors;                  /* 1 gray, 3 RGB, 4 RGBA */
  int blocks;                  /* blocks of an MCU */
  int mcus_across, mcus_down;
  long max_memory;
};

struct feed {
  fill_mcu fill;
  void *source;
};

static boolean next_mcu(j_decompress_ptr info, JBLOCKROW *blocks) {
  struct feed *feed = (struct feed *)info->client_data;
  feed->fill(feed->source, blocks ? &blocks[0][0][0] : NULL, info->blocks_in_MCU);
  return TRUE;
}

/* Decodes a window. `header` holds the segments of a baseline JPEG up to the header of its only
 * scan. `out` has `rows * columns * colors` bytes. Returns 0, or -1 with a message of at most
 * JMSG_LENGTH_MAX bytes. */
int infeed_coefficients_decode(const uint8_t *header, size_t length, const struct request *request,
                               fill_mcu fill, void *source, uint8_t *out, char *message) {
  struct failure failure;
  struct jpeg_decompress_struct info;
  struct feed feed = {fill, source};
  begin(&failure, &info, message);
  if (setjmp(failure.target)) {
    jpeg_destroy_decompress(&info);
    return -1;
  }
  jpeg_create_decompress(&info);
  info.client_data = &feed;
  info.mem->max_memory_to_use = request->max_memory;
  jpeg_mem_src(&info, header, (unsigned long)length);
  jpeg_read_header(&info, TRUE);
  info.out_color_space = request->colors == 1 ? JCS_GRAYSCALE
                         : request->colors == 3 ? JCS_RGB
                                                : JCS_EXT_RGBA;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.scale_num = (unsigned)request->eighths;
  info.scale_denom = 8;
  /* Checked before memory is allocated for the image, and again where they decide about bounds. */
  if ((int)info.image_width != request->width || (int)info.image_height != request->height ||
      info.progressive_mode || info.arith_code || info.data_precision != 8 ||
      info.comps_in_scan != info.num_components) {
    snprintf(message, MESSAGE, "the header is not that of the record");
    longjmp(failure.target, 1);
  }
  jpeg_start_decompress(&info);
  if (info.blocks_in_MCU != request->blocks || (int)info.MCUs_per_row != request->mcus_across ||
      (int)info.MCU_rows_in_scan != request->mcus_down ||
      info.output_components != request->colors) {
    snprintf(message, MESSAGE, "the MCUs are not those of the record");
    longjmp(failure.target, 1);
  }
  info.entropy->decode_mcu = next_mcu;
  JDIMENSION left = (JDIMENSION)request->left, columns = (JDIMENSION)request->columns;
  if (left != 0 || columns != info.output_width)
    jpeg_crop_scanline(&info, &left, &columns);
  if ((int)left != request->left || (int)columns != request->columns ||
      (JDIMENSION)(request->top + request->rows) > info.output_height) {
    snprintf(message, MESSAGE, "the window does not fit the image");
    longjmp(failure.target, 1);
  }
  if (request->top > 0)
    jpeg_skip_scanlines(&info, (JDIMENSION)request->top);
  const size_t pitch = (size_t)request->columns * (size_t)request->colors;
  for (int row = 0; row < request->rows;) {
    JSAMPROW rows[8];
    int count = request->rows - row < 8 ? request->rows - row : 8;
    for (int i = 0; i < count; i++)
      rows[i] = out + (size_t)(row + i) * pitch;
    row += (int)jpeg_read_scanlines(&info, rows, (JDIMENSION)count);
  }
  jpeg_destroy_decompress(&info);
  return 0;
}

/* Receives one row of blocks of a component, padded to whole MCUs of an interleaved scan, in row
 * order of the 64 coefficients. */
typedef void (*take_row)(void *sink, int component, const int16_t *blocks, int count);

/* Reads all coefficients of a file, component by component, row by row. Returns 0, -1 with a
 * message, or 1 if the file is progressive and lacks refinements, so that its pixels depend on more
 * than its coefficients. */
int infeed_coefficients_read(const uint8_t *file, size_t length, int max_scans, long max_memory,
                             take_row take, void *sink, char *message) {
  struct failure failure;
  struct jpeg_decompress_struct info;
  struct progress progress;
  begin(&failure, &info, message);
  if (setjmp(failure.target)) {
    jpeg_destroy_decompress(&info);
    return -1;
  }
  jpeg_create_decompress(&info);
  memset(&progress, 0, sizeof progress);
  progress.manager.progress_monitor = limit_scans;
  progress.max_scans = max_scans;
  info.progress = &progress.manager;
  info.mem->max_memory_to_use = max_memory;
  jpeg_mem_src(&info, file, (unsigned long)length);
  jpeg_read_header(&info, TRUE);
  if (info.arith_code || info.data_precision != 8) {
    snprintf(message, MESSAGE, "arithmetic coding, or samples of other than 8 bits");
    longjmp(failure.target, 1);
  }
  jvirt_barray_ptr *arrays = jpeg_read_coefficients(&info);
  int incomplete = 0;
  if (info.progressive_mode && info.coef_bits)
    for (int component = 0; component < info.num_components; component++)
      for (int k = 0; k < DCTSIZE2; k++)
        incomplete |= info.coef_bits[component][k] != 0;
  for (int component = 0; component < info.num_components && !incomplete; component++) {
    jpeg_component_info *shape = &info.comp_info[component];
    /* A component alone in its file has MCUs of one block. */
    int is_single = info.num_components == 1;
    int h = is_single ? 1 : shape->h_samp_factor, v = is_single ? 1 : shape->v_samp_factor;
    JDIMENSION across = (shape->width_in_blocks + h - 1) / h * h;
    JDIMENSION down = (shape->height_in_blocks + v - 1) / v * v;
    for (JDIMENSION y = 0; y < down; y++) {
      JBLOCKARRAY row =
          info.mem->access_virt_barray((j_common_ptr)&info, arrays[component], y, 1, FALSE);
      take(sink, component, &row[0][0][0], (int)across);
    }
  }
  jpeg_destroy_decompress(&info);
  return incomplete;
}
