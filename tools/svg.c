/* SPDX-License-Identifier: Apache-2.0 */
/* SVG text, element by element. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/svg.h"

static void add(struct svg *svg, const char *format, ...) MR_PRINTF(2, 3);

static void add(struct svg *svg, const char *format, ...) {
  char piece[512];
  va_list arguments;
  va_start(arguments, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  int bytes = vsnprintf(piece, sizeof piece, format, arguments);
  va_end(arguments);
  MR_ASSERT(bytes >= 0 && (size_t)bytes < sizeof piece);
  if (svg->failed || mr_array_reserve((void **)&svg->text, &svg->capacity,
                                      (uint64_t)svg->length + (uint64_t)bytes + 1, 1) != MR_OK) {
    svg->failed = true;
    return;
  }
  memcpy(svg->text + svg->length, piece, (size_t)bytes + 1);
  svg->length += (uint32_t)bytes;
}

/* Text between tags; control characters have no place in XML and become spaces. */
static void add_escaped(struct svg *svg, const char *text) {
  for (const char *c = text; *c != '\0'; c++) {
    switch (*c) {
    case '&':
      add(svg, "&amp;");
      break;
    case '<':
      add(svg, "&lt;");
      break;
    case '>':
      add(svg, "&gt;");
      break;
    default:
      add(svg, "%c", (unsigned char)*c < ' ' ? ' ' : *c);
    }
  }
}

void svg_begin(struct svg *svg, double width, double height, const char *title, const char *style) {
  *svg = (struct svg){0};
  add(svg,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
      "height=\"%.0f\" role=\"img\">\n<title>",
      width, height, width, height);
  add_escaped(svg, title);
  add(svg, "</title>\n<style>\n");
  for (size_t at = 0; at < strlen(style); at += 256) {
    add(svg, "%.256s", style + at);
  }
  add(svg, "</style>\n");
  svg_box(svg, "card", (struct svg_point){0, 0}, width, height);
}

void svg_line(struct svg *svg, const char *class_name, struct svg_point from, struct svg_point to) {
  add(svg, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class_name,
      from.x, from.y, to.x, to.y);
}

void svg_box(struct svg *svg, const char *class_name, struct svg_point corner, double width,
             double height) {
  add(svg, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
      class_name, corner.x, corner.y, width, height);
}

void svg_disc(struct svg *svg, const char *class_name, struct svg_point centre, double radius) {
  add(svg, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>\n", class_name, centre.x,
      centre.y, radius);
}

void svg_path(struct svg *svg, const char *class_name, const struct svg_point *points,
              uint32_t count, bool closed) {
  add(svg, "<%s class=\"%s\" points=\"", closed ? "polygon" : "polyline", class_name);
  for (uint32_t i = 0; i < count; i++) {
    add(svg, "%s%.1f,%.1f", i == 0 ? "" : " ", points[i].x, points[i].y);
  }
  add(svg, "\"/>\n");
}

void svg_text(struct svg *svg, const char *class_name, struct svg_point at, const char *text) {
  add(svg, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class_name, at.x, at.y);
  add_escaped(svg, text);
  add(svg, "</text>\n");
}

void svg_text_upwards(struct svg *svg, const char *class_name, struct svg_point at,
                      const char *text) {
  add(svg, "<text class=\"%s\" transform=\"translate(%.1f %.1f) rotate(-90)\">", class_name, at.x,
      at.y);
  add_escaped(svg, text);
  add(svg, "</text>\n");
}

mr_status svg_finish(struct svg *svg, char **text_out) {
  add(svg, "</svg>\n");
  if (svg->failed) {
    free(svg->text);
    *svg = (struct svg){0};
    return MR_NO_MEMORY;
  }
  *text_out = svg->text;
  *svg = (struct svg){0};
  return MR_OK;
}
